"""``lorebank keys``: create, list and revoke."""

import sys
from collections.abc import Coroutine
from datetime import datetime
from typing import Any

from cyclopts import App

from lorebank._enums import RoleName, enum_name
from lorebank.cli.examples import examples
from lorebank.cli.failures import UsageError
from lorebank.cli.memories import moment
from lorebank.cli.output import note, print_json, print_rows
from lorebank.cli.paging import take
from lorebank.cli.selection import aware
from lorebank.cli.server_package import server_module
from lorebank.cli.session import Own, Session
from lorebank.v1.key_pb2 import Key, Role


def register(app: App) -> None:
    """Add the commands."""
    keys = App(name="keys", help="Create, list and revoke the keys of a space.")
    keys.command(
        create,
        help_epilogue=examples(
            "lorebank keys create ci-agent --role writer --project shop",
            "export LOREBANK_API_KEY=$(lorebank keys create maren --role admin)",
            "lorebank keys create --direct --owner maren --role admin",
        ),
    )
    keys.command(list_, name="list", help_epilogue=examples("lorebank keys list"))
    keys.command(revoke, help_epilogue=examples("lorebank keys revoke k1Lm2No3"))
    app.command(keys)


def create(
    owner: str,
    *,
    role: RoleName = "writer",
    project: str = "",
    display_name: str = "",
    expire_time: datetime | None = None,
    direct: bool = False,
    session: Own,
) -> int | Coroutine[Any, Any, None]:
    """Create a key. Its secret is shown once; in a pipe, nothing but the secret is printed.

    Args:
        owner: The person or agent that acts through it, whose private memories it opens.
        role: What it may do; each role includes those before it: reader, writer, reviewer, admin.
        project: The only project that it may see and write.
        display_name: Name for people.
        expire_time: When it ceases to work, such as 2027-01-01.
        direct: Write it into the database that lorebank serve would use here, for a server that nobody can call yet.
        session: The global options.
    """
    if not direct:
        return _create(session, owner, role=role, project=project, display_name=display_name, expire_time=expire_time)
    if expire_time or session.json:
        raise UsageError("--direct takes neither --expire-time nor --json.")
    return _create_directly(owner, role=role, project=project, name=display_name, space=session.space)


async def list_(*, session: Own) -> None:
    """List keys, oldest first, without their secrets.

    Args:
        session: The global options.
    """
    async with session.client() as client:
        keys, _ = await take(client.keys.list(), 0)
    if session.json:
        print_json(keys)
        return
    print_rows(
        ("id", "owner", "roles", "project", "state", "name"),
        (
            (
                key.id,
                key.owner,
                ", ".join(enum_name(Role, role) for role in key.roles),
                key.project or "-",
                _state(key),
                key.display_name,
            )
            for key in keys
        ),
    )


async def revoke(id: str, /, *, session: Own) -> None:
    """Revoke a key for good.

    Args:
        id: Its id, as in lorebank keys list.
        session: The global options.
    """
    async with session.client() as client:
        key = await client.keys.revoke(id)
    if session.json:
        print_json(key)
        return
    print_rows(("result", "id", "owner"), [("REVOKED", key.id, key.owner)])


def _create_directly(owner: str, **options: str) -> int:
    given = {name: value for name, value in options.items() if value}
    code: int = server_module("lorebank_server.app").create_key_command(owner=owner, **given)
    return code


async def _create(
    session: Session, owner: str, *, role: RoleName, project: str, display_name: str, expire_time: datetime | None
) -> None:
    async with session.client() as client:
        answer = await client.keys.create(
            owner,
            roles=[role],
            project=project,
            display_name=display_name,
            expire_time=aware(expire_time) if expire_time else None,
        )
    if session.json:
        print_json(answer)
        return
    print(answer.secret)
    if sys.stdout.isatty():
        note(f"Key {answer.key.id} of {owner}. This secret is not shown again; set it as LOREBANK_API_KEY.")


def _state(key: Key) -> str:
    if key.revoked:
        return "revoked"
    return f"until {moment(key.expire_time)}" if key.HasField("expire_time") else "valid"
