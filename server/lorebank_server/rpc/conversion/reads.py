"""Requests that read, and their answers."""

from collections.abc import Sequence

from lorebank.v1 import find_pb2, graph_pb2, read_pb2, revision_pb2
from lorebank_server.domain.errors import InvalidArgumentError
from lorebank_server.domain.memory import Memory
from lorebank_server.domain.ranking import Mode, Score
from lorebank_server.operations.find import FindQuery, FindResult
from lorebank_server.operations.graph import GraphQuery, GraphResult
from lorebank_server.operations.list_memories import ListQuery, MemoryPage, RevisionPage
from lorebank_server.rpc.conversion.memories import write_memory, write_relation, write_revision
from lorebank_server.rpc.conversion.selectors import to_selector


def check_one_name(request: read_pb2.GetMemoryRequest) -> None:
    """Refuse a request that names its memory in no way, or in several.

    Raises:
        InvalidArgumentError: It does.
    """
    given = [name for name in ("id", "uid", "key") if getattr(request, name)]
    if len(given) != 1:
        raise InvalidArgumentError(
            f"Name the memory by exactly one of id, uid and key; this request has {' and '.join(given) or 'none'}.",
            field=given[1] if given else "id",
        )


def to_find_query(request: find_pb2.FindRequest) -> FindQuery:
    """What to look for."""
    return FindQuery(
        query=request.query,
        similar_to=request.similar_to,
        selector=to_selector(request.selector),
        mode=Mode(request.mode or Mode.HYBRID),
        limit=request.limit,
        min_similarity=request.min_similarity if request.HasField("min_similarity") else None,
        skip_usage=request.skip_usage,
    )


def from_find_result(result: FindResult, view: int) -> find_pb2.FindResponse:
    """The answer to a search."""
    response = find_pb2.FindResponse(below_threshold=result.below_threshold, degraded=result.degraded)
    for found in result.hits:
        hit = response.hits.add(score=found.score.total, matched=found.matched)
        write_memory(found.memory, hit.memory, view)
        _write_score(found.score, hit.parts)
    return response


def to_list_query(request: read_pb2.ListMemoriesRequest) -> ListQuery:
    """Which memories, in which order."""
    return ListQuery(
        selector=to_selector(request.selector),
        order_by=request.order_by,
        page_size=request.page_size,
        page_token=request.page_token,
    )


def from_memory_page(page: MemoryPage, view: int) -> read_pb2.ListMemoriesResponse:
    """One page of memories."""
    response = read_pb2.ListMemoriesResponse(next_page_token=page.next_page_token, total_size=page.total_size)
    for memory in page.memories:
        write_memory(memory, response.memories.add(), view)
    return response


def from_memories(memories: Sequence[Memory], missing: Sequence[str], view: int) -> read_pb2.BatchGetMemoriesResponse:
    """Memories by their ids, and the ids that are not there."""
    response = read_pb2.BatchGetMemoriesResponse(missing=missing)
    for memory in memories:
        write_memory(memory, response.memories.add(), view)
    return response


def from_revision_page(page: RevisionPage) -> revision_pb2.ListRevisionsResponse:
    """One page of a history."""
    response = revision_pb2.ListRevisionsResponse(next_page_token=page.next_page_token)
    for revision in page.revisions:
        write_revision(revision, response.revisions.add())
    return response


def to_graph_query(request: graph_pb2.GraphRequest) -> GraphQuery:
    """Where to begin and how far to go."""
    return GraphQuery(
        ids=tuple(request.ids),
        relation_types=tuple(request.relation_types),
        min_strength=request.min_strength,
        hops=request.hops,
        max_nodes=request.max_nodes,
    )


def from_graph_result(result: GraphResult) -> graph_pb2.GraphResponse:
    """A piece of the graph; nodes are called by the ids of their memories."""
    response = graph_pb2.GraphResponse(truncated=result.truncated)
    for node in result.nodes:
        target = response.nodes.add(ref=node.memory.id, distance=node.distance, weight=node.weight)
        write_memory(node.memory, target.memory)
    for relation in result.edges:
        write_relation(relation, response.edges.add())
    return response


def _write_score(score: Score, target: find_pb2.FindResponse.Score) -> None:
    target.similarity = score.similarity
    target.lexical = score.lexical
    target.max_similarity = score.max_similarity
    target.max_lexical = score.max_lexical
    target.fused = score.fused
    target.strength = score.quality.strength
    target.retention = score.quality.retention
    target.reputation = score.quality.reputation
    target.applicability = score.applicability
    target.age_days = score.quality.age_days
