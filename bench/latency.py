"""What a call costs above what nobody can save: the embedding, the round trip and the commit.

    python -m bench.latency [--memories N] [--report FILE]

A server of its own (the real ``lorebank serve``), one caller. Floors and calls take turns one by one, in the same run,
so that the machine is the same for both: a processor that has just waited for another process embeds at half the speed
of one that does nothing else, and an embedding inside a call has always just waited. The floors are the model in this
process with the server's own settings, an empty call (health), and a one-row insert with a synchronous commit in the
server's own Postgres. The model measured without a pause stands in the report as well. Texts are recombined from
the example memories of ``lorebank demo``: the first half of one with the second half of another. No text and no query
is used twice, so that no cache answers.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any
from urllib.parse import quote

import asyncpg
import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub

from bench.service import Service, running_service
from lorebank import AsyncClient, Memory
from lorebank_server.bench.corpus import queries, texts
from lorebank_server.bench.machine import describe
from lorebank_server.config import Settings
from lorebank_server.embedding import CachedEmbedder, create_embedder
from lorebank_server.embedding_backend import embedding_spec
from lorebank_server.postgres.cluster import PORT

_ROUNDS = 5
_CALLS = 100
_BATCH_ITEMS = 100
_BATCHES = 10
_SEED = 7


@dataclass
class Samples:
    """Milliseconds by what took them, one list for each round."""

    rounds: dict[str, list[list[float]]] = field(default_factory=dict)

    async def take(self, calls: Mapping[str, Callable[[], Awaitable[Any]]], *, times: int) -> None:
        """Time these calls in turns, ``times`` turns, as one round."""
        taken: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(times):
            for name, call in calls.items():
                begin = perf_counter()
                await call()
                taken[name].append((perf_counter() - begin) * 1000)
        for name, round_times in taken.items():
            self.rounds.setdefault(name, []).append(round_times)

    def p50(self, name: str) -> float:
        """The median of the rounds' medians."""
        return median(median(times) for times in self.rounds[name])

    def p95(self, name: str) -> float:
        """The median of the rounds' 95th percentiles."""
        return median(sorted(times)[int(len(times) * 0.95)] for times in self.rounds[name])


@dataclass(frozen=True)
class Ratio:
    """A call against its floor.

    Attributes:
        bound: What it must keep, in words.
        kept: Whether it does.
    """

    name: str
    value: float
    bound: str
    kept: bool


async def measure(service: Service, embedder: CachedEmbedder, memories: int) -> str:
    """Fill the server, measure, and return the report."""
    fresh_texts, fresh_queries = texts(_SEED), queries(_SEED)
    samples = Samples()
    async with AsyncClient(service.address) as local:
        key = await local.keys.create("bench", roles=["admin"])
    async with (
        AsyncClient(service.address, api_key=key.secret) as client,
        grpc.aio.insecure_channel(service.address, options=[("grpc.enable_http_proxy", 0)]) as channel,
        _inserting(service) as insert,
    ):
        await store_all(client, [next(fresh_texts) for _ in range(memories)])
        health = HealthStub(channel)
        for number in range(_ROUNDS + 1):
            turn = {
                "empty call": lambda: health.Check(HealthCheckRequest()),
                "commit": insert,
                "embed a query": lambda: embedder.embed_query(next(fresh_queries)),
                "Find": lambda: client.find(next(fresh_queries)),
                "embed a text": lambda: embedder.embed_documents([next(fresh_texts)]),
                "Store": lambda: client.store(next(fresh_texts)),
            }
            await samples.take(turn, times=_CALLS)
            alone = {"embed a query, without a pause": turn["embed a query"]}
            await samples.take(alone, times=_CALLS)
            if number == 0:  # connections, plans and caches of the machine
                samples.rounds.clear()
        model_rates, store_rates = [], []
        for _ in range(_BATCHES):
            batch = [next(fresh_texts) for _ in range(_BATCH_ITEMS)]
            begin = perf_counter()
            await embedder.embed_documents(batch)
            model_rates.append(len(batch) / (perf_counter() - begin))
            begin = perf_counter()
            await store_all(client, batch)
            store_rates.append(len(batch) / (perf_counter() - begin))
    return _report(samples, median(model_rates), median(store_rates), memories)


def _report(samples: Samples, model_rate: float, store_rate: float, memories: int) -> str:
    find_floor = samples.p50("embed a query") + samples.p50("empty call")
    store_floor = samples.p50("embed a text") + samples.p50("empty call") + samples.p50("commit")
    find, store, batch = samples.p50("Find") / find_floor, samples.p50("Store") / store_floor, store_rate / model_rate
    unpaused = samples.p50("Find") / (samples.p50("embed a query, without a pause") + samples.p50("empty call"))
    ratios = [
        Ratio("Find / (embed a query + empty call), in turns", find, "at most 2.5, aim 1.3", find <= 2.5),
        Ratio("Find / (embed a query without a pause + empty call)", unpaused, "at most 2.5, aim 1.3", unpaused <= 2.5),
        Ratio("Store / (embed a text + empty call + commit)", store, "at most 2", store <= 2),
        Ratio("BatchStore / model alone, memories per second", batch, "at least 0.7", batch >= 0.7),
    ]
    return "\n".join(
        [
            "# Latency above the floor",
            "",
            f"{datetime.now(UTC):%Y-%m-%d}. {describe()}.",
            f"{memories} memories, recombined from the example memories of `lorebank demo`; one caller, no text and no",
            f"query twice. Medians of {_ROUNDS} rounds of {_CALLS} turns of one floor and one call after the other.",
            "",
            "| | p50 ms | p95 ms |",
            "|---|---|---|",
            *(f"| {name} | {samples.p50(name):.2f} | {samples.p95(name):.2f} |" for name in samples.rounds),
            "",
            f"In batches of {_BATCH_ITEMS}, on the same texts: the model alone {model_rate:.0f} texts/s, BatchStore",
            f"{store_rate:.0f} memories/s.",
            "",
            "| ratio | measured | bound | kept |",
            "|---|---|---|---|",
            *(f"| {each.name} | {each.value:.2f} | {each.bound} | {'yes' if each.kept else 'no'} |" for each in ratios),
            "",
        ]
    )


async def store_all(client: AsyncClient, contents: Sequence[str]) -> None:
    memories = (Memory(content=content) for content in contents)
    async for item in client.store_many(memories, batch_size=_BATCH_ITEMS):
        if item.HasField("failure"):
            raise RuntimeError(item.failure.message)


@asynccontextmanager
async def _inserting(service: Service) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
    """A function that commits one row in the server's own Postgres."""
    socket_folder = quote(str(service.data_dir / "run"), safe="")
    connection = await asyncpg.connect(f"postgresql://lorebank@/lorebank?host={socket_folder}&port={PORT}")
    try:
        await connection.execute("create table floor (number bigint generated always as identity, text text)")
        statement = await connection.prepare("insert into floor (text) values ($1)")
        yield lambda: statement.fetch("a row as short as can be")
    finally:
        await connection.close()


async def _main() -> None:
    parser = argparse.ArgumentParser(description="Latency above the floor")
    parser.add_argument("--memories", type=int, default=10_000)
    parser.add_argument("--report", type=Path)
    arguments = parser.parse_args()
    embedder = await create_embedder(embedding_spec(Settings()))
    try:
        async with running_service() as service:
            report = await measure(service, embedder, arguments.memories)
    finally:
        await embedder.aclose()
    print(report)
    if arguments.report:
        arguments.report.write_text(report)


if __name__ == "__main__":
    asyncio.run(_main())
