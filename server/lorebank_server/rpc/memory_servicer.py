"""MemoryService: each procedure converts, calls its operation, and converts back.

The interceptors have seen to the credential, its role, the space and the values of the fields.
"""

from typing import Any

from lorebank.v1 import (
    find_pb2,
    graph_pb2,
    memory_service_pb2_grpc,
    read_pb2,
    revision_pb2,
    store_pb2,
    vote_pb2,
    write_pb2,
)
from lorebank_server.domain.errors import InvalidArgumentError, LorebankError
from lorebank_server.operations.find import find
from lorebank_server.operations.get import get_memories, get_memory
from lorebank_server.operations.graph import graph
from lorebank_server.operations.list_memories import list_memories, list_revisions
from lorebank_server.operations.revise import delete_memory, undelete_memory, update_memory
from lorebank_server.operations.services import Services
from lorebank_server.operations.store import StoreCommand, refuse_batch_size, store, store_many
from lorebank_server.operations.supersede import supersede
from lorebank_server.operations.vote import vote
from lorebank_server.rpc import unsupported, validation
from lorebank_server.rpc.caller import caller
from lorebank_server.rpc.conversion import reads, writes
from lorebank_server.rpc.conversion.memories import from_memory
from lorebank_server.rpc.conversion.requests import require, to_uid

MAX_BATCH = 500


class MemoryServicer(memory_service_pb2_grpc.MemoryServiceServicer):
    """Serves memories from the operations; what it leaves out is answered UNIMPLEMENTED."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def Store(self, request: store_pb2.StoreRequest, context: Any) -> store_pb2.StoreResponse:
        command = writes.to_store_command(request)
        return writes.from_store_result(await store(self._services, caller(), command))

    async def BatchStore(self, request: store_pb2.BatchStoreRequest, context: Any) -> store_pb2.BatchStoreResponse:
        refuse_batch_size(len(request.requests), maximum=MAX_BATCH)
        commands = [_batched(item) for item in request.requests]
        return writes.from_outcomes(await store_many(self._services, caller(), commands))

    async def Find(self, request: find_pb2.FindRequest, context: Any) -> find_pb2.FindResponse:
        result = await find(self._services, caller(), reads.to_find_query(request))
        return reads.from_find_result(result, request.view)

    async def Vote(self, request: vote_pb2.VoteRequest, context: Any) -> vote_pb2.VoteResponse:
        return writes.from_voted(await vote(self._services, caller(), writes.to_vote_command(request)))

    async def Supersede(self, request: store_pb2.SupersedeRequest, context: Any) -> store_pb2.SupersedeResponse:
        result = await supersede(self._services, caller(), writes.to_supersede_command(request))
        return writes.from_supersede_result(result)

    async def Graph(self, request: graph_pb2.GraphRequest, context: Any) -> graph_pb2.GraphResponse:
        return reads.from_graph_result(await graph(self._services, caller(), reads.to_graph_query(request)))

    async def GetMemory(self, request: read_pb2.GetMemoryRequest, context: Any) -> read_pb2.GetMemoryResponse:
        reads.check_one_name(request)
        uid = to_uid("uid", request.uid) if request.uid else None
        memory = await get_memory(self._services, caller(), id=request.id, uid=uid, key=request.key)
        return read_pb2.GetMemoryResponse(memory=from_memory(memory))

    async def BatchGetMemories(
        self, request: read_pb2.BatchGetMemoriesRequest, context: Any
    ) -> read_pb2.BatchGetMemoriesResponse:
        require("ids", request.ids)
        memories, missing = await get_memories(self._services, caller(), list(request.ids))
        return reads.from_memories(memories, missing, request.view)

    async def ListMemories(self, request: read_pb2.ListMemoriesRequest, context: Any) -> read_pb2.ListMemoriesResponse:
        page = await list_memories(self._services, caller(), reads.to_list_query(request))
        return reads.from_memory_page(page, request.view)

    async def UpdateMemory(
        self, request: write_pb2.UpdateMemoryRequest, context: Any
    ) -> write_pb2.UpdateMemoryResponse:
        command = writes.to_update_command(request)
        return writes.from_update_result(await update_memory(self._services, caller(), command))

    async def DeleteMemory(
        self, request: write_pb2.DeleteMemoryRequest, context: Any
    ) -> write_pb2.DeleteMemoryResponse:
        require("id", request.id)
        memory = await delete_memory(self._services, caller(), id=request.id, etag=request.etag)
        return write_pb2.DeleteMemoryResponse(memory=from_memory(memory))

    async def UndeleteMemory(
        self, request: write_pb2.UndeleteMemoryRequest, context: Any
    ) -> write_pb2.UndeleteMemoryResponse:
        require("id", request.id)
        memory = await undelete_memory(self._services, caller(), id=request.id, etag=request.etag)
        return write_pb2.UndeleteMemoryResponse(memory=from_memory(memory))

    async def ListRevisions(
        self, request: revision_pb2.ListRevisionsRequest, context: Any
    ) -> revision_pb2.ListRevisionsResponse:
        require("id", request.id)
        page = await list_revisions(
            self._services, caller(), id=request.id, page_size=request.page_size, page_token=request.page_token
        )
        return reads.from_revision_page(page)


def _batched(item: store_pb2.StoreRequest) -> StoreCommand | LorebankError:
    """One item of a batch, or the error that it fails with while the others go on."""
    try:
        if item.space not in {"", caller().space}:
            raise InvalidArgumentError("An item's space is empty or that of the batch; leave it out.", field="space")
        validation.check_values(item)
        unsupported.refuse_unsupported(item)
        return writes.to_store_command(item)
    except LorebankError as error:
        return error
