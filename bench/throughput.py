"""How many Find a second one server answers when callers ask again as soon as they are answered.

    python -m bench.throughput [--memories N] [--report FILE]

A server of its own. Fresh queries, of which none comes twice, and the same 50 in turns, whose vectors the server
remembers; by one caller, whose latency is given, and by eight. The callers run on the same machine.
"""

import argparse
import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from time import perf_counter

from bench.latency import store_all
from bench.service import running_service
from lorebank import AsyncClient
from lorebank_server.bench.corpus import queries, texts
from lorebank_server.bench.machine import describe

_ROUNDS = 5
_ROUND_S = 8.0
_SEED = 11


async def measure(address: str, memories: int) -> str:
    """Fill the server, measure, and return the report."""
    async with AsyncClient(address) as local:
        key = await local.keys.create("bench", roles=["admin"])
    rates: dict[str, list[float]] = {}
    latencies: dict[str, list[float]] = {}
    async with AsyncClient(address, api_key=key.secret) as client:
        fresh_texts, fresh = texts(_SEED), queries(_SEED)
        await store_all(client, list(islice(fresh_texts, memories)))
        known = list(islice(fresh, 50))
        for number in range(_ROUNDS + 1):
            for name, asked, callers in (
                ("fresh queries", fresh, 8),
                ("fresh queries", fresh, 1),
                ("remembered queries", cycle(known), 8),
                ("remembered queries", cycle(known), 1),
            ):
                times, took_s = await _ask(client, asked, callers)
                if number:  # the first round fills caches
                    label = f"{name}, {callers} callers" if callers > 1 else f"{name}, one caller"
                    rates.setdefault(label, []).append(len(times) / took_s)
                    latencies.setdefault(label, []).append(median(times))
    return "\n".join(
        [
            "# Throughput of Find",
            "",
            f"{datetime.now(UTC):%Y-%m-%d}. {describe()}.",
            f"{memories} memories, recombined from the example memories of `lorebank demo`. Medians of {_ROUNDS}",
            f"rounds of {_ROUND_S:.0f} seconds; the callers run on the same machine.",
            "",
            "| | Find a second | p50 ms |",
            "|---|---|---|",
            *(f"| {label} | {median(rates[label]):.1f} | {median(latencies[label]):.2f} |" for label in rates),
            "",
        ]
    )


async def _ask(client: AsyncClient, asked: Iterator[str], callers: int) -> tuple[list[float], float]:
    """Milliseconds of every call, and the seconds that all of them took."""
    times: list[float] = []
    begin = perf_counter()
    await asyncio.gather(*(_caller(client, asked, times, lambda: perf_counter() - begin) for _ in range(callers)))
    return times, perf_counter() - begin


async def _caller(client: AsyncClient, asked: Iterator[str], times: list[float], passed_s: Callable[[], float]) -> None:
    while passed_s() < _ROUND_S:
        begin = perf_counter()
        await client.find(next(asked))
        times.append((perf_counter() - begin) * 1000)


async def _main() -> None:
    parser = argparse.ArgumentParser(description="Throughput of Find")
    parser.add_argument("--memories", type=int, default=10_000)
    parser.add_argument("--report", type=Path)
    arguments = parser.parse_args()
    async with running_service() as service:
        report = await measure(service.address, arguments.memories)
    print(report)
    if arguments.report:
        arguments.report.write_text(report)


if __name__ == "__main__":
    asyncio.run(_main())
