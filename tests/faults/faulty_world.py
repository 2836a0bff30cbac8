"""A real server whose dependencies are reached through proxies that can be told to fail."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from openai_endpoint import OpenAIEndpoint
from tcp_proxy import TcpProxy

from bench.qdrant_double import QdrantDouble
from lorebank import LorebankError
from lorebank._status import from_rpc_error
from lorebank.v1.memory_service_pb2_grpc import MemoryServiceStub
from lorebank_server.circuit_breaker import MAX_FAILURES, CircuitBreaker
from lorebank_server.config import Settings
from lorebank_server.embedding import CachedEmbedder
from lorebank_server.embedding.guarded import GuardedEmbedder
from lorebank_server.embedding.guarded import is_outage as embedder_is_away
from lorebank_server.embedding.http import OpenAICompatibleEmbedder
from lorebank_server.ports.embedder import Embedder
from lorebank_server.rpc.health import watch_storage
from lorebank_server.serving import Running, running_server
from lorebank_server.vectors import QdrantSpec, open_store
from lorebank_server.vectors.guarded import GuardedStore
from lorebank_server.vectors.guarded import is_outage as store_is_away

OPEN_S = 0.5
"""How long circuits stay open here; nothing else about them differs from a server that serves."""

PATIENCE_S = 30.0
"""How long an outage's end may take to show on a busy machine, before a test fails."""

_NUMBERS = itertools.count(1)
_Seen = TypeVar("_Seen")


@dataclass(frozen=True)
class World:
    """A server under test, and what is between it and its dependencies.

    Attributes:
        dsn: The database without a proxy in between.
        proxies: By the name of the dependency: ``postgres``, ``embedder`` and ``vector store``.
        model: Name of the embedding model.
        breaker: The embedder's.
    """

    running: Running
    channel: grpc.aio.Channel
    dsn: str
    proxies: dict[str, TcpProxy]
    endpoint: OpenAIEndpoint
    model: str
    breaker: CircuitBreaker
    breaker_opens_after: int = MAX_FAILURES

    async def call(self, procedure: str, request: Any, *, deadline_s: float = PATIENCE_S) -> Any:
        """The answer of one call that is sent once.

        Raises:
            LorebankError: It failed.
        """
        try:
            return await getattr(MemoryServiceStub(self.channel), procedure)(request, timeout=deadline_s)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error

    async def serves(self) -> bool:
        """What the server says of its health."""
        answer = await HealthStub(self.channel).Check(HealthCheckRequest(), timeout=PATIENCE_S)
        return bool(answer.status == HealthCheckResponse.SERVING)


async def eventually(look: Callable[[], Awaitable[_Seen]]) -> _Seen:
    """What ``look`` gives, once it fails no more and gives anything."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                if seen := await look():
                    return seen
            except LorebankError:
                pass
            await asyncio.sleep(0.05)


@asynccontextmanager
async def faulty_world(
    database: str, embedder: Embedder, *, model: str = "", qdrant: bool = False, **settings: Any
) -> AsyncIterator[World]:
    """A server on ``database``, with ``embedder`` behind HTTP, and with ``qdrant`` a vector store outside of it."""
    async with AsyncExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr("lorebank_server.serving.watch_storage", partial(watch_storage, interval_s=0.2))
        endpoint = await stack.enter_async_context(OpenAIEndpoint(embedder))
        proxies = {
            "postgres": await stack.enter_async_context(TcpProxy(_socket_of(database))),
            "embedder": await stack.enter_async_context(TcpProxy(_port(endpoint.port))),
        }
        store = None
        if qdrant:
            double = await stack.enter_async_context(QdrantDouble())
            proxies["vector store"] = await stack.enter_async_context(TcpProxy(_port(double.port)))
            store = open_store(QdrantSpec(url=f"http://127.0.0.1:{proxies['vector store'].port}", exact=True))
            stack.push_async_callback(store.aclose)
            guarded = partial(GuardedStore, breaker=_breaker("vector index", store_is_away))
            patch.setattr("lorebank_server.vector_backend.GuardedStore", guarded)
        breaker = _breaker("embedder", embedder_is_away)
        model = model or f"remote-{next(_NUMBERS)}"
        remote = await OpenAICompatibleEmbedder.create(
            url=f"http://127.0.0.1:{proxies['embedder'].port}/v1", model=model, dimensions=384
        )
        cached = CachedEmbedder(GuardedEmbedder(remote, breaker))
        stack.push_async_callback(cached.aclose)
        chosen = Settings(**{"listen": "127.0.0.1:0", "database_pool_size": 8, "drain_grace_s": 1.0, **settings})
        running = await stack.enter_async_context(
            running_server(chosen, _through(proxies["postgres"], database), embedder=cached, vector_store=store)
        )
        options = [("grpc.enable_retries", 0), ("grpc.enable_http_proxy", 0)]
        channel = await stack.enter_async_context(
            grpc.aio.insecure_channel(f"127.0.0.1:{running.port}", options=options)
        )
        yield World(running, channel, database, proxies, endpoint, model, breaker)
        # What is still away would only hold up the end.
        for proxy in proxies.values():
            await proxy.heal()


def _breaker(dependency: str, is_failure: Callable[[Exception], bool]) -> CircuitBreaker:
    return CircuitBreaker(dependency, is_failure=is_failure, open_s=OPEN_S)


def _port(port: int) -> Callable[[], Awaitable[Any]]:
    return partial(asyncio.open_connection, "127.0.0.1", port)


def _socket_of(dsn: str) -> Callable[[], Awaitable[Any]]:
    folder, port = (parse_qs(urlsplit(dsn).query)[name][0] for name in ("host", "port"))
    return partial(asyncio.open_unix_connection, Path(folder) / f".s.PGSQL.{port}")


def _through(proxy: TcpProxy, dsn: str) -> str:
    parts = urlsplit(dsn)
    return f"postgresql://{parts.username}@127.0.0.1:{proxy.port}{parts.path}?sslmode=disable"
