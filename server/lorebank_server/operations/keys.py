"""API keys: create, list and revoke."""

from dataclasses import replace
from datetime import datetime

from lorebank_server.domain import limits
from lorebank_server.domain.errors import AbortedError, InvalidArgumentError, NotFoundError
from lorebank_server.domain.ids import hash_secret, new_key_secret, new_short_id
from lorebank_server.domain.keys import ApiKey
from lorebank_server.domain.principal import Principal
from lorebank_server.operations import paging
from lorebank_server.operations.authenticate import require_governor
from lorebank_server.operations.services import Services
from lorebank_server.operations.spaces import get_space
from lorebank_server.ports.administration import Administration


async def create_key(services: Services, principal: Principal, space_id: str, key: ApiKey) -> tuple[ApiKey, str]:
    """As ``issue_key``, on the services' administration and clock."""
    return await issue_key(services.administration, principal, space_id, key, now=services.clock())


async def issue_key(
    administration: Administration, principal: Principal, space_id: str, key: ApiKey, *, now: datetime
) -> tuple[ApiKey, str]:
    """Create a key and return it with its secret, which is never shown again.

    Raises:
        NotFoundError: The space is not there, or not the caller's.
        InvalidArgumentError: A field is at fault.
    """
    require_governor(principal)
    space = await get_space(administration, principal, space_id)
    limits.check_text("key.display_name", key.display_name, maximum=limits.MAX_NAME_CHARS)
    limits.check_text("key.owner", key.owner, maximum=limits.MAX_NAME_CHARS)
    limits.check_project("key.project", key.project)
    if not key.owner.strip():
        raise InvalidArgumentError(
            "key.owner is empty: name the person or agent whose private memories the key opens.", field="key.owner"
        )
    if not key.roles:
        raise InvalidArgumentError("key.roles is empty: grant READER, WRITER, REVIEWER or ADMIN.", field="key.roles")
    if key.expire_time is not None and key.expire_time <= now:
        raise InvalidArgumentError("key.expire_time must be in the future.", field="key.expire_time")
    for _ in range(5):
        fresh = replace(key, id=new_short_id(), create_time=now, last_used_time=None, revoke_time=None)
        secret = new_key_secret(fresh.id)
        if await administration.create_key(principal, space, fresh, secret_hash=hash_secret(secret)):
            return fresh, secret
    raise AbortedError("No free key id was found; try again.", reason="WRITE_CONFLICT")


async def list_keys(
    services: Services, principal: Principal, space_id: str, *, page_size: int, page_token: str
) -> tuple[list[ApiKey], str]:
    """A page of a space's keys in the order of their ids, without secrets."""
    require_governor(principal)
    space = await get_space(services.administration, principal, space_id)
    size = paging.page_size(page_size)
    position = paging.decode(page_token, query=["keys", space.id])
    rows = await services.administration.list_keys(
        principal, space, after=position["after"] if position else "", limit=size + 1
    )
    token = paging.encode({"after": rows[size - 1].id}, query=["keys", space.id]) if len(rows) > size else ""
    return rows[:size], token


async def revoke_key(services: Services, principal: Principal, space_id: str, key_id: str) -> ApiKey:
    """Revoke a key for good; a revoked one stays as it is.

    Raises:
        NotFoundError: The space or the key is not there, or not the caller's.
    """
    require_governor(principal)
    space = await get_space(services.administration, principal, space_id)
    revoked = await services.administration.revoke_key(principal, space, key_id, time=services.clock())
    if revoked is None:
        raise NotFoundError(
            f"There is no key {key_id[:64]!r} in the space {space.id}. List the keys to get its id.",
            reason="KEY_NOT_FOUND",
            metadata={"id": key_id[:64]},
        )
    return revoked
