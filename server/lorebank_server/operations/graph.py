"""Graph: walk from memories along their relations."""

from dataclasses import dataclass
from uuid import UUID

from lorebank_server.domain import limits
from lorebank_server.domain.errors import InvalidArgumentError
from lorebank_server.domain.memory import Memory, Relation
from lorebank_server.domain.principal import Principal
from lorebank_server.operations import writing
from lorebank_server.operations.services import Services
from lorebank_server.ports.storage import ReadSession

MAX_HOPS = 3
DEFAULT_NODES = 100
MAX_NODES = 500
MAX_STARTS = 100
_EDGES_PER_NODE = 50


@dataclass(frozen=True, slots=True)
class GraphQuery:
    """Where to begin and how far to go.

    Attributes:
        relation_types: Only edges of these types; empty means all.
        hops: 0 to 3; 0 returns the starting points and the edges among them.
        max_nodes: 1 to 500; 0 means 100.
    """

    ids: tuple[str, ...]
    relation_types: tuple[str, ...] = ()
    min_strength: float = 0.0
    hops: int = 1
    max_nodes: int = DEFAULT_NODES


@dataclass(frozen=True, slots=True)
class Node:
    """A memory, its distance in hops from the nearest starting point, and the best product of strengths to it."""

    memory: Memory
    distance: int
    weight: float


@dataclass(frozen=True, slots=True)
class GraphResult:
    """A self-contained graph: both ends of every edge are among the nodes.

    Attributes:
        nodes: By distance, then weight (highest first), then id.
        edges: By source, type and target.
        truncated: Whether there was more than ``max_nodes`` or the bound of 50 edges a node let through.
    """

    nodes: tuple[Node, ...]
    edges: tuple[Relation, ...]
    truncated: bool


async def graph(services: Services, principal: Principal, query: GraphQuery) -> GraphResult:
    """Walk relations in both directions from the given memories, through what the caller may see only.

    What is reached is active or superseded, not stale and not over; the starting points may be anything.

    Raises:
        NotFoundError: A starting point is not there, or not visible to the caller.
        InvalidArgumentError: A field is at fault.
    """
    _check(query)
    ids = tuple(dict.fromkeys(query.ids))
    maximum = query.max_nodes or DEFAULT_NODES
    async with services.storage.reading(principal) as session:
        starts = await session.memories_by_id(ids)
        for memory_id in ids:
            if memory_id not in starts:
                raise writing.not_found(memory_id)
        reached: dict[UUID, tuple[int, float]] = {starts[i].uid: (0, 1.0) for i in ids[:maximum]}
        truncated = len(ids) > maximum
        frontier = list(reached)
        for distance in range(1, query.hops + 1):
            rows, more = await _edges(session, query, frontier)
            found: dict[UUID, float] = {}
            for relation, source, target in rows:
                for here, there in ((source, target), (target, source)):
                    if here in reached and there not in reached:
                        weight = reached[here][1] * relation.strength
                        found[there] = max(found.get(there, 0.0), weight)
            room = maximum - len(reached)
            nearest = sorted(found.items(), key=lambda entry: (-entry[1], entry[0]))
            truncated = truncated or more or len(nearest) > room
            frontier = [uid for uid, _ in nearest[:room]]
            reached |= {uid: (distance, weight) for uid, weight in nearest[:room]}
            if not frontier:
                break
        edges, more = await _edges(session, query, list(reached), among=True)
        truncated = truncated or more
        memories = await session.memories_by_uid(list(reached))
    nodes = [Node(memories[uid], *place) for uid, place in reached.items() if uid in memories]
    nodes.sort(key=lambda node: (node.distance, -node.weight, node.memory.id))
    inside = {node.memory.uid for node in nodes}
    kept = [relation for relation, source, target in edges if source in inside and target in inside]
    return GraphResult(
        tuple(nodes), tuple(sorted(kept, key=lambda edge: (edge.source, edge.type, edge.target))), truncated
    )


async def _edges(
    session: ReadSession, query: GraphQuery, uids: list[UUID], *, among: bool = False
) -> tuple[list[tuple[Relation, UUID, UUID]], bool]:
    """The strongest edges at these memories, and whether there are more."""
    bound = _EDGES_PER_NODE * len(uids)
    rows = await session.relations_of(
        uids, types=query.relation_types, min_strength=query.min_strength, limit=bound + 1, among=among
    )
    return rows[:bound], len(rows) > bound


def _check(query: GraphQuery) -> None:
    if not query.ids:
        raise InvalidArgumentError("ids is empty: name the memories to begin from.", field="ids")
    if len(query.ids) > MAX_STARTS:
        raise InvalidArgumentError(f"ids has {len(query.ids)} entries; at most {MAX_STARTS} begin a walk.", field="ids")
    if not 0 <= query.hops <= MAX_HOPS:
        raise InvalidArgumentError(f"hops must be from 0 to {MAX_HOPS}.", field="hops")
    if not 0 <= query.max_nodes <= MAX_NODES:
        raise InvalidArgumentError(
            f"max_nodes must be from 1 to {MAX_NODES}, or 0 for {DEFAULT_NODES}.", field="max_nodes"
        )
    limits.check_share("min_strength", query.min_strength)
