"""A served database with tenants in it, and callers that say how their calls ended."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2, status_pb2

from lorebank import AsyncClient, LorebankError
from lorebank_server.config import Settings
from lorebank_server.serving import Running, running_server

LOOPBACK = "127.0.0.1:0"


class MovableTime:
    """A clock that moves only when told to, and only forwards."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 15, 12, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **parts: float) -> None:
        self.now += timedelta(**parts)


@dataclass(frozen=True)
class Outcome:
    """How one raw call ended; ``details`` is the whole status as it came over the wire."""

    code: grpc.StatusCode
    reason: str = ""
    domain: str = ""
    message: str = ""
    details: bytes = b""
    response: Any = None

    def without(self, name: str) -> tuple[Any, ...]:
        """All that was told, with ``name`` taken out; names compared must be of one length."""
        return self.code, self.reason, self.message.replace(name, "*"), self.details.replace(name.encode(), b"*")


class World:
    """One server and whoever calls it."""

    def __init__(self, running: Running, dsn: str, embedder: Any, clock: MovableTime, stack: AsyncExitStack) -> None:
        self.running = running
        self.dsn = dsn
        self.embedder = embedder
        self.clock = clock
        self.address = f"127.0.0.1:{running.port}"
        self.operator = ""
        self._stack = stack
        self._clients: dict[str, AsyncClient] = {}
        self._channel = grpc.aio.insecure_channel(self.address, options=[("grpc.enable_http_proxy", 0)])
        stack.push_async_callback(self._channel.close)

    def client(self, secret: str | None = None) -> AsyncClient:
        """A client with this key, the operator's by default; an empty one brings none."""
        secret = self.operator if secret is None else secret
        if secret not in self._clients:
            self._clients[secret] = AsyncClient(self.address, api_key=secret)
            self._stack.push_async_callback(self._clients[secret].close)
        return self._clients[secret]

    async def key(self, space: str, owner: str, role: str = "writer", **more: Any) -> Any:
        """A new key of a space, with its secret."""
        async with AsyncClient(self.address, api_key=self.operator, space=space) as operator:
            return await operator.keys.create(owner, roles=[role], **more)

    async def caller(self, space: str, owner: str, role: str = "writer", project: str = "") -> AsyncClient:
        """A client with a new key."""
        return self.client((await self.key(space, owner, role, project=project)).secret)

    async def call(
        self,
        service: str,
        procedure: Any,
        request: Any,
        *,
        secret: str = "",
        metadata: tuple[tuple[str, str], ...] | None = None,
    ) -> Outcome:
        """Call any procedure by its descriptor; of a stream, the first message counts."""
        kind = ("stream" if procedure.client_streaming else "unary") + (
            "_stream" if procedure.server_streaming else "_unary"
        )
        bound = getattr(self._channel, kind)(
            f"/{service}/{procedure.name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=GetMessageClass(procedure.output_type).FromString,
        )
        if metadata is None:
            metadata = (("authorization", f"Bearer {secret}"),) if secret else ()
        begun = bound(iter([request]) if procedure.client_streaming else request, metadata=metadata, timeout=10.0)
        try:
            response = await (begun.read() if procedure.server_streaming else begun)
        except grpc.aio.AioRpcError as error:
            return _ended(error)
        return Outcome(grpc.StatusCode.OK, response=response)

    @asynccontextmanager
    async def another_server(self, **settings: Any) -> AsyncIterator["World"]:
        """One more server on the same database and clock."""
        async with _serving(self.dsn, self.embedder, self.clock, **settings) as world:
            world.operator = self.operator
            yield world


@asynccontextmanager
async def open_world(database_factory: Callable[[], Any], embedder: Any, **settings: Any) -> AsyncIterator[World]:
    """A server on an empty database, which local callers may govern until the first key is made."""
    async with _serving(await database_factory(), embedder, MovableTime(), **settings) as world:
        yield world


@asynccontextmanager
async def governed_world(database_factory: Callable[[], Any], embedder: Any, *spaces: str) -> AsyncIterator[World]:
    """A server with an operator and these spaces."""
    async with open_world(database_factory, embedder) as world:
        world.operator = (await world.client("").keys.create("operator", roles=["admin"])).secret
        for space in spaces:
            await world.client().spaces.create(space)
        yield world


@asynccontextmanager
async def database_owner(dsn: str) -> AsyncIterator[Any]:
    """A connection that no wall stops."""
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


async def tables(connection: Any) -> dict[str, set[str]]:
    """Every table with its columns."""
    rows = await connection.fetch(
        "select table_name, array_agg(column_name::text) as columns from information_schema.columns "
        "where table_schema = current_schema() group by table_name"
    )
    return {row["table_name"]: set(row["columns"]) for row in rows}


async def refusal(call: Awaitable[Any]) -> LorebankError:
    """The error that a call must end with."""
    with pytest.raises(LorebankError) as caught:
        await call
    return caught.value


def told(error: LorebankError, name: str) -> tuple[Any, ...]:
    """All that an error says, with ``name`` taken out."""
    metadata = {key: value.replace(name, "*") for key, value in error.metadata.items()}
    return error.code, error.reason, error.message.replace(name, "*"), metadata


@asynccontextmanager
async def _serving(dsn: str, embedder: Any, clock: MovableTime, **settings: Any) -> AsyncIterator[World]:
    chosen = Settings(**{"listen": LOOPBACK, "database_pool_size": 6, "drain_grace_s": 1.0, **settings})
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(running_server(chosen, dsn, embedder=embedder, clock=clock))
        yield World(running, dsn, embedder, clock, stack)


def _ended(error: grpc.aio.AioRpcError) -> Outcome:
    details = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
    info = error_details_pb2.ErrorInfo()
    for detail in status_pb2.Status.FromString(details).details:
        if detail.Is(info.DESCRIPTOR):
            detail.Unpack(info)
    return Outcome(error.code(), info.reason, info.domain, error.details() or "", details)
