"""``lorebank get``, ``list`` and ``history``."""

from typing import Annotated

from cyclopts import App, Parameter

from lorebank._enums import enum_name
from lorebank.cli.examples import examples
from lorebank.cli.failures import UsageError
from lorebank.cli.memories import moment, print_memories, print_memory, text_of
from lorebank.cli.output import note, print_json, print_rows
from lorebank.cli.paging import take
from lorebank.cli.selection import Narrow, chosen
from lorebank.cli.session import Own
from lorebank.v1.revision_pb2 import Revision

_EXIT_NOT_FOUND = 3


def register(app: App) -> None:
    """Add the commands."""
    app.command(
        get,
        help_epilogue=examples(
            "lorebank get a1B2c3D4",
            "lorebank get --key deploy/rollback --json",
            "lorebank get a1B2c3D4 e5F6g7H8",
        ),
    )
    app.command(
        list_,
        name="list",
        help_epilogue=examples(
            "lorebank list --project shop --tag staging",
            "lorebank list --state deleted --order-by 'update_time asc'",
            "lorebank list --limit 0 --json > all.json",
        ),
    )
    app.command(history, help_epilogue=examples("lorebank history a1B2c3D4"))


async def get(*ids: str, key: str = "", uid: str = "", session: Own) -> int:
    """Read memories in any state, by id, by your own key, or by uid.

    Args:
        ids: Their ids; with several, --json prints an array.
        key: Natural key of one memory.
        uid: UUID of one memory.
        session: The global options.
    """
    if bool(ids) + bool(key) + bool(uid) != 1:
        raise UsageError("Say which memory: ids, --key or --uid, and only one of these.")
    async with session.client() as client:
        if len(ids) <= 1:
            memory = await client.get("".join(ids), key=key, uid=uid)
            if session.json:
                print_json(memory)
            else:
                print_memory(memory)
            return 0
        answer = await client.get_many(ids)
    if session.json:
        print_json(answer.memories)
    else:
        print_memories(list(answer.memories))
    for missing in answer.missing:
        note(f"There is no memory {missing} that you can see.")
    return _EXIT_NOT_FOUND if answer.missing else 0


async def list_(
    *,
    limit: Annotated[int, Parameter(name=("--limit", "-n"))] = 50,
    order_by: str = "create_time",
    narrow: Narrow = None,
    session: Own,
) -> None:
    """List memories, newest first, without ranking them.

    With --json it prints an array of memories; ``lorebank import`` reads such memories, one a line.

    Args:
        limit: Most memories to list; 0 lists all.
        order_by: create_time, update_time, use_count or strength, largest first unless " asc" follows.
        narrow: Which memories to list.
        session: The global options.
    """
    async with session.client() as client:
        pager = client.list(order_by=order_by, page_size=min(limit, 500), selector=chosen(narrow))
        memories, more = await take(pager, limit)
    if session.json:
        print_json(memories)
        return
    if not memories:
        note("No memories.")
        return
    print_memories(memories)
    if more:
        note("There are more; list them with a larger --limit, or all with --limit 0.")


async def history(id: str, /, *, session: Own) -> None:
    """Show how a memory came to be what it is, newest revision first.

    Args:
        id: Its id.
        session: The global options.
    """
    async with session.client() as client:
        revisions = [revision async for revision in client.history(id)]
    revisions.sort(key=lambda revision: revision.revision, reverse=True)
    if session.json:
        print_json(revisions)
        return
    print_rows(
        ("rev", "change", "actor", "when", "text"),
        (
            (
                str(entry.revision),
                enum_name(Revision.Change, entry.change),
                entry.actor,
                moment(entry.create_time),
                f"{text_of(entry.memory)}\nReason: {entry.reason}" if entry.reason else text_of(entry.memory),
            )
            for entry in revisions
        ),
    )
