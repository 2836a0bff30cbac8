"""A space of its own for every test, on one server that they all share."""

from collections.abc import Awaitable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import asyncpg
import grpc
import pytest

from lorebank import AsyncClient, LorebankError
from lorebank._status import from_rpc_error
from lorebank.v1 import find_pb2, memory_pb2, memory_service_pb2, store_pb2

_SERVICE = memory_service_pb2.DESCRIPTOR.services_by_name["MemoryService"]


@dataclass(frozen=True)
class Caller:
    """Somebody with a key, by client and by raw message."""

    client: AsyncClient
    channel: grpc.aio.Channel
    secret: str
    owner: str

    async def call(self, request: Any) -> Any:
        """Send a request to the procedure that takes it."""
        procedure = type(request).__name__.removesuffix("Request")
        return await self.send(procedure, request.SerializeToString())

    async def send(self, procedure: str, data: bytes) -> Any:
        """Send bytes, whatever they are."""
        answer = _SERVICE.methods_by_name[procedure].output_type._concrete_class
        method = self.channel.unary_unary(f"/{_SERVICE.full_name}/{procedure}", None, answer.FromString)
        metadata = (("authorization", f"Bearer {self.secret}"),) if self.secret else ()
        try:
            return await method(data, timeout=20.0, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error

    async def refused(self, request: Any) -> LorebankError:
        """The error that a request is answered with."""
        with pytest.raises(LorebankError) as caught:
            await self.call(request)
        return caught.value

    async def store(self, content: str = "", **fields: Any) -> memory_pb2.Memory:
        """Store through the client; gives the memory alone."""
        return (await self.client.store(content, **fields)).memory

    async def find(self, query: str = "", **options: Any) -> find_pb2.FindResponse:
        """Find without counting use."""
        return await self.client.find(query, **{"skip_usage": True, **options})

    async def found(self, query: str = "", **options: Any) -> list[str]:
        """Ids of the hits."""
        return [hit.memory.id for hit in (await self.find(query, **options)).hits]

    async def listed(self, **options: Any) -> list[str]:
        """Ids of all pages of a listing."""
        return [memory.id async for memory in self.client.list(**options)]

    async def histories(self, memory_id: str) -> list[Any]:
        """All revisions of a memory."""
        return [revision async for revision in self.client.history(memory_id)]

    async def still_works(self) -> None:
        """Store one more thing and find it by its words."""
        word = f"w{uuid4().hex}"
        stored = await self.store(f"The canary sings {word}.")
        assert [stored.id] == await self.found(word, mode="lexical")


@dataclass
class SpaceApart:
    """A tenant of its own; ``me`` is its admin."""

    id: str
    address: str
    dsn: str
    operator_secret: str
    stack: AsyncExitStack
    channel: grpc.aio.Channel

    async def caller(self, owner: str, *, role: str = "writer", project: str = "") -> Caller:
        """Somebody with a fresh key and a connection of their own."""
        governing = await self.stack.enter_async_context(
            AsyncClient(self.address, api_key=self.operator_secret, space=self.id)
        )
        secret = (await governing.keys.create(owner, roles=[role], project=project)).secret
        client = await self.stack.enter_async_context(AsyncClient(self.address, api_key=secret, timeout_s=20.0))
        return Caller(client, self.channel, secret, owner)

    async def another_connection(self, who: Caller) -> Caller:
        """The same caller over a channel of its own."""
        client = AsyncClient(self.address, api_key=who.secret, timeout_s=30.0)
        await self.stack.enter_async_context(client)
        return Caller(client, self.channel, who.secret, who.owner)

    async def rows(self, table: str) -> int:
        """How many rows a table holds for this space."""
        column = "number" if table == "spaces" else "space_id"
        connection = await asyncpg.connect(self.dsn)
        try:
            return int(
                await connection.fetchval(
                    f"select count(*) from {table} t join spaces s on s.number = t.{column} where s.id = $1", self.id
                )
            )
        finally:
            await connection.close()


async def outcome(attempt: Awaitable[Any]) -> Any:
    """What a call answers, or the error it fails with."""
    try:
        return await attempt
    except LorebankError as error:
        return error


def store_request(content: str = "The staging database is wiped every Monday.", **fields: Any) -> Any:
    """A request to store; fields of the memory by name, ``request_id`` and the like too."""
    envelope = {
        name: fields.pop(name) for name in list(fields) if name in store_pb2.StoreRequest.DESCRIPTOR.fields_by_name
    }
    return store_pb2.StoreRequest(memory=memory_pb2.Memory(content=content, **fields), **envelope)
