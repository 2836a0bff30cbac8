"""ListMemories and ListRevisions: everything, page by page."""

from dataclasses import asdict, dataclass
from datetime import datetime
from uuid import UUID

from lorebank_server.domain.errors import InvalidArgumentError
from lorebank_server.domain.memory import Memory, Revision
from lorebank_server.domain.principal import Principal
from lorebank_server.domain.selector import Selector
from lorebank_server.operations import paging, writing
from lorebank_server.operations.selecting import resolve
from lorebank_server.operations.services import Services
from lorebank_server.ports.storage import OrderBy, Position


@dataclass(frozen=True, slots=True)
class ListQuery:
    """Which memories, in which order.

    Attributes:
        order_by: ``create_time``, ``update_time``, ``use_count`` or ``strength``, with ``asc`` or ``desc`` behind
            it if wanted; empty means ``create_time desc``.
    """

    selector: Selector = Selector()
    order_by: str = ""
    page_size: int = 0
    page_token: str = ""


@dataclass(frozen=True, slots=True)
class MemoryPage:
    """One page; the token is empty on the last. ``total_size`` is as counted for the first page."""

    memories: tuple[Memory, ...]
    next_page_token: str
    total_size: int


@dataclass(frozen=True, slots=True)
class RevisionPage:
    """One page of a memory's history, oldest first; the token is empty on the last."""

    revisions: tuple[Revision, ...]
    next_page_token: str


async def list_memories(services: Services, principal: Principal, query: ListQuery) -> MemoryPage:
    """One page of the selected memories.

    Raises:
        InvalidArgumentError: The selector, the order or the page token is at fault.
    """
    selector = resolve(query.selector, services.vocabulary)
    order_by, descending = _order(query.order_by)
    size = paging.page_size(query.page_size)
    identity = ["list", principal.space_id, principal.owner, str(asdict(selector)), order_by, descending]
    position = paging.decode(query.page_token, query=identity)
    now = services.clock()
    after, total = None, 0
    if position is not None:
        now = datetime.fromisoformat(position["now"])
        after = Position(position["value"], UUID(position["uid"]))
        total = position["total"]
    async with services.storage.reading(principal) as session:
        rows = await session.list_memories(
            selector, order_by=order_by, descending=descending, after=after, limit=size + 1, now=now
        )
        if position is None:
            total = await session.count_memories(selector, now=now)
    token = ""
    if len(rows) > size:
        last = rows[size - 1][1]
        token = paging.encode(
            {"value": last.value, "uid": str(last.uid), "now": now.isoformat(), "total": total}, query=identity
        )
    return MemoryPage(tuple(memory for memory, _ in rows[:size]), token, total)


async def list_revisions(
    services: Services,
    principal: Principal,
    *,
    id: str,
    page_size: int = 0,
    page_token: str = "",
) -> RevisionPage:
    """One page of the history of a visible memory.

    Raises:
        NotFoundError: It is not there, or not visible to the caller.
        InvalidArgumentError: The page token is at fault.
    """
    size = paging.page_size(page_size)
    position = paging.decode(page_token, query=["revisions", id])
    async with services.storage.reading(principal) as session:
        memory = (await session.memories_by_id([id])).get(id)
        if memory is None:
            raise writing.not_found(id)
        rows = await session.revisions(memory.uid, after=position["after"] if position else 0, limit=size + 1)
    token = ""
    if len(rows) > size:
        token = paging.encode({"after": rows[size - 1].memory.revision}, query=["revisions", id])
    return RevisionPage(tuple(rows[:size]), token)


def _order(order_by: str) -> tuple[OrderBy, bool]:
    name, _, direction = (order_by.strip() or "create_time desc").partition(" ")
    direction = direction.strip() or "desc"
    if name not in set(OrderBy) or direction not in {"asc", "desc"}:
        raise InvalidArgumentError(
            "order_by must be create_time, update_time, use_count or strength, with 'asc' or 'desc' behind it.",
            field="order_by",
        )
    return OrderBy(name), direction == "desc"
