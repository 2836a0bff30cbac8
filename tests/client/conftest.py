"""A server that fails on cue, for what a real one does not do at will."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc.status_pb2 import Status

from lorebank.v1 import key_pb2, store_pb2
from lorebank.v1.memory_service_pb2_grpc import MemoryServiceServicer, add_MemoryServiceServicer_to_server
from lorebank.v1.space_service_pb2_grpc import SpaceServiceServicer, add_SpaceServiceServicer_to_server


@dataclass(frozen=True)
class Failure:
    """One failing answer, with messages or raw bytes as details."""

    code: grpc.StatusCode
    message: str = "no"
    details: tuple[Message, ...] | bytes = ()

    def trailing_metadata(self) -> tuple[tuple[str, bytes], ...]:
        if isinstance(self.details, bytes):
            return (("grpc-status-details-bin", self.details),)
        status = Status(code=self.code.value[0], message=self.message)
        for detail in self.details:
            status.details.add().Pack(detail)
        return (("grpc-status-details-bin", status.SerializeToString()),)


@dataclass
class Script(MemoryServiceServicer, SpaceServiceServicer):
    """Fails as ``failures`` say, then answers; remembers what it was sent."""

    failures: list[Failure] = field(default_factory=list)
    requests: list[Any] = field(default_factory=list)
    metadata: list[dict[str, Any]] = field(default_factory=list)
    silent: bool = False
    address: str = ""

    async def _take(self, request: Message, context: Any) -> None:
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        if self.silent:
            await asyncio.Event().wait()
        if self.failures:
            failure = self.failures.pop(0)
            await context.abort(failure.code, failure.message, failure.trailing_metadata())

    async def Store(self, request, context):  # noqa: N802 - the contract's name
        await self._take(request, context)
        return store_pb2.StoreResponse(memory=request.memory, result=store_pb2.StoreResponse.RESULT_CREATED)

    async def BatchStore(self, request, context):  # noqa: N802 - the contract's name
        await self._take(request, context)
        answers = [store_pb2.StoreResponse(memory=each.memory) for each in request.requests]
        return store_pb2.BatchStoreResponse(
            items=[store_pb2.BatchStoreResponse.Item(response=answer) for answer in answers]
        )

    async def CreateKey(self, request, context):  # noqa: N802 - the contract's name
        await self._take(request, context)
        return key_pb2.CreateKeyResponse(key=request.key, secret="s")


@pytest.fixture
async def script() -> AsyncIterator[Script]:
    server = grpc.aio.server()
    servicer = Script()
    add_MemoryServiceServicer_to_server(servicer, server)
    add_SpaceServiceServicer_to_server(servicer, server)
    servicer.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    yield servicer
    await server.stop(grace=None)


@pytest.fixture
def failing() -> type[Failure]:
    """Makes the failures of a script."""
    return Failure
