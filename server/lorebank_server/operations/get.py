"""Get: read memories by id, uid or natural key."""

from collections.abc import Sequence
from uuid import UUID

from lorebank_server.domain import limits
from lorebank_server.domain.errors import InvalidArgumentError, NotFoundError
from lorebank_server.domain.memory import Memory
from lorebank_server.domain.principal import Principal
from lorebank_server.operations import writing
from lorebank_server.operations.services import Services

MAX_IDS = 500


async def get_memory(
    services: Services,
    principal: Principal,
    *,
    id: str = "",
    uid: UUID | None = None,
    key: str = "",
) -> Memory:
    """One visible memory in whatever state, by exactly one of its names.

    Raises:
        NotFoundError: It is not there, or not visible to the caller.
    """
    async with services.storage.reading(principal) as session:
        if key:
            limits.check_text("key", key, maximum=limits.MAX_NAME_CHARS)
            found = await session.memory_by_key(key)
            if found is None:
                raise NotFoundError(
                    f"No living memory that you can see has the key {key!r}.",
                    reason="MEMORY_NOT_FOUND",
                    metadata={"key": key},
                )
            return found
        if uid is not None:
            found = (await session.memories_by_uid([uid])).get(uid)
        else:
            found = (await session.memories_by_id([id])).get(id)
        if found is None:
            raise writing.not_found(id or str(uid))
        return found


async def get_memories(services: Services, principal: Principal, ids: Sequence[str]) -> tuple[list[Memory], list[str]]:
    """The visible memories among ``ids`` in that order, each once, and the ids that are not there."""
    if len(ids) > MAX_IDS:
        raise InvalidArgumentError(f"ids has {len(ids)} entries; at most {MAX_IDS} are read.", field="ids")
    wanted = list(dict.fromkeys(ids))
    async with services.storage.reading(principal) as session:
        found = await session.memories_by_id(wanted)
    return [found[id_] for id_ in wanted if id_ in found], [id_ for id_ in wanted if id_ not in found]
