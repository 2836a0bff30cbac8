"""Calls that read memories."""

from collections.abc import Iterable
from typing import Final, Unpack

from lorebank._enums import ModeName, ViewName, enum_number
from lorebank._fields import SelectorFields, new_selector
from lorebank._pager import AsyncPager
from lorebank._transport import Transport
from lorebank.v1 import find_pb2, graph_pb2, read_pb2, revision_pb2
from lorebank.v1.memory_pb2 import Memory, View
from lorebank.v1.selector_pb2 import Selector

DEFAULT_HITS: Final = 10


class MemoryReads:
    """The part of ``AsyncClient`` that changes nothing but how often a memory was used."""

    _transport: Transport
    _space: str

    async def find(
        self,
        query: str = "",
        *,
        similar_to: str = "",
        limit: int = DEFAULT_HITS,
        mode: ModeName | int | None = None,
        min_similarity: float | None = None,
        view: ViewName | int | None = None,
        skip_usage: bool = False,
        selector: Selector | None = None,
        **narrow: Unpack[SelectorFields],
    ) -> find_pb2.FindResponse:
        """Recall the memories that help most with something.

        Args:
            query: The question or situation in plain words.
            similar_to: Id of a memory whose likes are wanted, instead of ``query``.
            limit: Most hits, 1 to 100.
            mode: "hybrid" (the default), "semantic" for meaning alone, or "lexical" for words alone.
            min_similarity: Least cosine similarity, 0 to 1.
            view: "full" (the default) or "summary".
            skip_usage: Look without counting use.
            selector: Which memories to consider, instead of ``narrow``.
            narrow: Which memories to consider, such as ``project``, ``categories`` or ``tags_all``.

        Returns:
            Hits, best first, each with the parts of its score; no hits when nothing matches.

        Raises:
            LorebankError: See the call Find of the contract.
        """
        if bool(query) == bool(similar_to):
            raise TypeError("Give either query or similar_to.")
        request = find_pb2.FindRequest(
            space=self._space,
            limit=limit,
            mode=enum_number(find_pb2.FindRequest.Mode, mode or 0),
            min_similarity=min_similarity,
            view=enum_number(View, view or 0),
            skip_usage=skip_usage,
            selector=new_selector(selector, narrow),
        )
        if query:
            request.query = query
        else:
            request.similar_to = similar_to
        return await self._transport.call(self._transport.memories.Find, request)

    async def get(self, id: str = "", *, key: str = "", uid: str = "") -> Memory:
        """Read one memory in any state, by exactly one of ``id``, ``key`` and ``uid``.

        Raises:
            NotFound: It is not there, or not visible.
        """
        if sum(map(bool, (id, key, uid))) != 1:
            raise TypeError("Give exactly one of id, key and uid.")
        request = read_pb2.GetMemoryRequest(space=self._space, id=id, key=key, uid=uid)
        answer = await self._transport.call(self._transport.memories.GetMemory, request)
        return answer.memory

    async def get_many(
        self, ids: Iterable[str], *, view: ViewName | int | None = None
    ) -> read_pb2.BatchGetMemoriesResponse:
        """Read up to 500 memories by id; what is not there is named in ``missing``."""
        request = read_pb2.BatchGetMemoriesRequest(space=self._space, ids=ids, view=enum_number(View, view or 0))
        return await self._transport.call(self._transport.memories.BatchGetMemories, request)

    def list(
        self,
        *,
        order_by: str = "",
        page_size: int = 0,
        view: ViewName | int | None = None,
        selector: Selector | None = None,
        **narrow: Unpack[SelectorFields],
    ) -> AsyncPager[Memory, read_pb2.ListMemoriesResponse]:
        """List memories without ranking them: ``async for memory in client.list(project="shop")``.

        Args:
            order_by: "create_time", "update_time", "use_count" or "strength", largest first unless " asc" follows.
                Default: "create_time".
            page_size: Items asked for at a time, 1 to 500. Default: the server's.
            view: "full" (the default) or "summary".
            selector: Which memories to list, instead of ``narrow``. Default: active ones that are not stale.
            narrow: Which memories to list, such as ``states`` or ``tags_any``.
        """
        request = read_pb2.ListMemoriesRequest(
            space=self._space,
            order_by=order_by,
            page_size=page_size,
            view=enum_number(View, view or 0),
            selector=new_selector(selector, narrow),
        )

        async def fetch(page_token: str) -> read_pb2.ListMemoriesResponse:
            request.page_token = page_token
            return await self._transport.call(self._transport.memories.ListMemories, request)

        return AsyncPager(fetch, lambda page: page.memories)

    def history(
        self,
        id: str,
        *,
        page_size: int = 0,
    ) -> AsyncPager[revision_pb2.Revision, revision_pb2.ListRevisionsResponse]:
        """List the revisions of a memory."""
        request = revision_pb2.ListRevisionsRequest(space=self._space, id=id, page_size=page_size)

        async def fetch(page_token: str) -> revision_pb2.ListRevisionsResponse:
            request.page_token = page_token
            return await self._transport.call(self._transport.memories.ListRevisions, request)

        return AsyncPager(fetch, lambda page: page.revisions)

    async def graph(
        self,
        ids: str | Iterable[str],
        *,
        hops: int = 1,
        relation_types: Iterable[str] = (),
        min_strength: float = 0.0,
        max_nodes: int = 0,
        selector: Selector | None = None,
    ) -> graph_pb2.GraphResponse:
        """Walk from memories along their relations.

        Args:
            ids: One memory to start from, or up to 100.
            hops: How many relations away to go, 0 to 3; 0 returns the starting points and the relations among them.
            relation_types: Types to follow. Default: all.
            min_strength: Least strength of a relation to follow, 0 to 1.
            max_nodes: Most nodes to return, 1 to 500. Default: the server's.
            selector: Which memories may appear. Default: active ones that are not stale.

        Returns:
            A graph in which both ends of every edge are among the nodes.
        """
        request = graph_pb2.GraphRequest(
            space=self._space,
            ids=[ids] if isinstance(ids, str) else ids,
            hops=hops,
            relation_types=relation_types,
            min_strength=min_strength,
            max_nodes=max_nodes,
            selector=selector,
        )
        return await self._transport.call(self._transport.memories.Graph, request)
