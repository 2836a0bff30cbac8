"""Find at a given rate, whether or not answers keep up.

An open loop: calls are due at the times of a Poisson process, as those of many independent callers are, and latency
counts from when a call was due. A server that stalls delays the calls behind it, and that waiting is measured too
(the opposite, a caller who politely waits and measures only what he sent, is known as coordinated omission).
"""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import grpc

from lorebank.v1.find_pb2 import FindRequest
from lorebank.v1.memory_service_pb2_grpc import MemoryServiceStub

if TYPE_CHECKING:  # a name that only the typed stubs have
    from lorebank.v1.memory_service_pb2_grpc import MemoryServiceAsyncStub

CALL_TIMEOUT_S: Final = 30.0
_SAMPLED: Final = "01"


@dataclass(frozen=True, slots=True)
class Target:
    """A server to call.

    Attributes:
        api_key: Empty to call without a credential.
        space: Empty for the space of the key.
        roots: PEM of the authorities to trust, None for the usual ones; only with ``tls``.
        channels: Connections; a server of several processes spreads connections over them, not calls.
    """

    address: str
    api_key: str = ""
    space: str = ""
    tls: bool = False
    roots: bytes | None = None
    channels: int = 4


@dataclass(frozen=True, slots=True)
class Call:
    """One Find as its caller saw it; times in seconds on the event loop's clock.

    Attributes:
        trace_id: 16 bytes, those of the spans that it made.
        due: When it was to be sent.
        sent: When it was.
        ended: When its answer or failure was there.
        code: Name of its status.
        hits: Memories in the answer.
        degraded: Whether the answer says that something did not work.
    """

    trace_id: bytes
    due: float
    sent: float
    ended: float
    code: str
    hits: int = 0
    degraded: bool = False

    @property
    def latency_ms(self) -> float:
        """From when it was due to its end."""
        return (self.ended - self.due) * 1000

    @property
    def ok(self) -> bool:
        """Whether it was answered."""
        return self.code == grpc.StatusCode.OK.name


def poisson_arrivals(rate: float, duration_s: float, *, seed: int) -> list[float]:
    """Times in seconds from the start, in order, at which calls of a Poisson process of ``rate`` a second are due."""
    chance = random.Random(seed)  # noqa: S311 - a schedule, no secret
    arrivals: list[float] = []
    moment = chance.expovariate(rate)
    while moment < duration_s:
        arrivals.append(moment)
        moment += chance.expovariate(rate)
    return arrivals


class LoadGenerator:
    """Calls one server over several connections."""

    def __init__(self, stubs: "Sequence[MemoryServiceAsyncStub]", target: Target, *, seed: int) -> None:
        self._stubs = stubs
        self._space = target.space
        self._metadata = (("authorization", f"Bearer {target.api_key}"),) if target.api_key else ()
        self._chance = random.Random(seed)  # noqa: S311 - names of traces

    async def run(self, queries: Iterator[str], arrivals: Sequence[float], *, concurrency: int) -> list[Call]:
        """Send a query at each arrival, and return the calls in that order once all have ended.

        Args:
            queries: Taken one after the other.
            arrivals: Seconds from now, in order.
            concurrency: Most calls under way; those beyond wait here, and their latency counts that.
        """
        free = asyncio.Semaphore(concurrency)
        loop = asyncio.get_running_loop()
        begin = loop.time()
        calls: list[asyncio.Task[Call]] = []
        for number, arrival in enumerate(arrivals):
            due = begin + arrival
            if (wait_s := due - loop.time()) > 0:
                await asyncio.sleep(wait_s)
            stub = self._stubs[number % len(self._stubs)]
            calls.append(loop.create_task(self._call(stub, next(queries), due, free)))
        return list(await asyncio.gather(*calls))

    async def _call(self, stub: "MemoryServiceAsyncStub", query: str, due: float, free: asyncio.Semaphore) -> Call:
        trace_id, span_id = self._chance.randbytes(16), self._chance.randbytes(8)
        metadata = (*self._metadata, ("traceparent", f"00-{trace_id.hex()}-{span_id.hex()}-{_SAMPLED}"))
        loop = asyncio.get_running_loop()
        async with free:
            sent = loop.time()
            try:
                answer = await stub.Find(
                    FindRequest(space=self._space, query=query), timeout=CALL_TIMEOUT_S, metadata=metadata
                )
            except grpc.aio.AioRpcError as error:
                return Call(trace_id, due, sent, loop.time(), error.code().name)
            ended = loop.time()
        return Call(trace_id, due, sent, ended, grpc.StatusCode.OK.name, len(answer.hits), bool(answer.degraded))


@asynccontextmanager
async def load_generator(target: Target, *, seed: int) -> AsyncIterator[LoadGenerator]:
    """A generator with its connections, which end with the block."""
    channels = [_channel(target) for _ in range(target.channels)]
    try:
        yield LoadGenerator([MemoryServiceStub(channel) for channel in channels], target, seed=seed)
    finally:
        for channel in channels:
            await channel.close()


def _channel(target: Target) -> grpc.aio.Channel:
    options: list[tuple[str, Any]] = [
        ("grpc.use_local_subchannel_pool", 1),  # or all channels share one connection
        ("grpc.enable_retries", 0),  # a second try would hide that the first one failed
    ]
    if target.address.startswith(("127.", "localhost:", "[::1]")):
        options.append(("grpc.enable_http_proxy", 0))
    if target.tls:
        return grpc.aio.secure_channel(target.address, grpc.ssl_channel_credentials(target.roots), options=options)
    return grpc.aio.insecure_channel(target.address, options=options)
