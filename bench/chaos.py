"""Kills under load: whatever dies, and whenever, no acknowledged memory is lost and none is stored twice.

    python -m bench.chaos [--rounds N] [--seed N] [--report FILE]

Callers store without pause, each store under a request id that is repeated until it is acknowledged. Each round
SIGKILLs the worker, Postgres or the supervisor at a random point of that stream (a dead supervisor is started again,
as a service manager would) and waits until stores are acknowledged again. At the end the server is stopped, and the
database itself is asked for every acknowledged memory, its revisions and its vector.
"""

import argparse
import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any
from uuid import uuid4

import asyncpg

from bench.service import PARTS, Part, Service, service_folder, until
from lorebank import AsyncClient
from lorebank.errors import Aborted, DeadlineExceeded, Unavailable
from lorebank_server.bench.machine import describe
from lorebank_server.postgres import embedded

_CALLERS = 4
_CALL_TIMEOUT_S = 5.0
_MOST_STORES_BEFORE_A_KILL = 40
_RECOVERY_TIMEOUT_S = 60.0
_RETRIED = (Unavailable, DeadlineExceeded, Aborted)

_FAULTS = {
    "memories without their current revision": """
        select count(*) from memories m
        where not exists (select from revisions r where r.memory = m.uid and r.revision = m.revision)""",
    "memories with fewer revisions than they had": """
        select count(*) from memories m
        where m.revision <> (select count(*) from revisions r where r.memory = m.uid)""",
    "memories without a vector": """
        select count(*) from memories m where not exists (select from embeddings e where e.memory = m.uid)""",
    "vectors that disagree with their memory": """
        select count(*) from memories m join embeddings e on e.memory = m.uid
        where (e.space_id, e.bucket_id, e.found_until)
            <> (m.space_id, m.bucket_id, found_until(m.state, m.stale_time, m.valid_until))""",
    "answers that name no memory": """
        select count(*) from answers a
        where not exists (select from memories m where m.space_id = a.space_id and m.id = a.result ->> 'id')""",
}


@dataclass
class Load:
    """What the callers were told.

    Attributes:
        stored: Content by id of every acknowledged memory.
        sent: Contents of all stores, acknowledged or not.
        repeats: Calls that had to be made again.
    """

    stored: dict[str, str] = field(default_factory=dict)
    sent: int = 0
    repeats: int = 0


@dataclass(frozen=True)
class Outcome:
    """What the database holds in the end.

    Attributes:
        lost: Acknowledged memories that are not there, or with other content.
        doubled: Contents stored more than once.
        faults: Broken invariants, with how often.
    """

    lost: int
    doubled: int
    faults: dict[str, int]

    @property
    def clean(self) -> bool:
        """Whether nothing was lost, doubled or broken."""
        return not (self.lost or self.doubled or self.faults)


@asynccontextmanager
async def storing(service: Service, *, own_connections: bool = False) -> Any:
    """Callers that store without pause while the block runs; each finishes the store it is at before it leaves.

    They share a connection, unless each is to have its own.
    """
    load, stop = Load(), asyncio.Event()
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as callers:
        clients = [
            await stack.enter_async_context(AsyncClient(service.address, timeout_s=_CALL_TIMEOUT_S))
            for _ in range(_CALLERS if own_connections else 1)
        ]
        for number in range(_CALLERS):
            callers.create_task(_store_until(stop, clients[number % len(clients)], number, load))
        try:
            yield load
        finally:
            stop.set()


async def kill_and_recover(service: Service, part: Part, load: Load, *, after_stores: int) -> float:
    """Kill a part after some more acknowledged stores; returns the seconds until stores were acknowledged again."""
    goal = len(load.stored) + after_stores
    await until(lambda: len(load.stored) >= goal, timeout_s=_RECOVERY_TIMEOUT_S)
    await until(lambda: service.kill(part) or service.process.poll() is not None, timeout_s=_RECOVERY_TIMEOUT_S)
    begin = perf_counter()
    # What was on its way when the kill came may still be acknowledged; one more than that is a sign of life.
    goal = len(load.stored) + _CALLERS + 1

    def recovered() -> bool:
        if service.process.poll() is not None:
            service.start()
        return len(load.stored) >= goal

    await until(recovered, timeout_s=_RECOVERY_TIMEOUT_S)
    return perf_counter() - begin


async def inspect(service: Service, load: Load) -> Outcome:
    """Compare what was acknowledged with what the data folder of a stopped server holds."""
    with embedded.start(service.data_dir) as postgres:
        connection = await asyncpg.connect(postgres.dsn)
        try:
            rows = await connection.fetch("select id, body ->> 'content' as content from memories")
            counts = {fault: await connection.fetchval(query) for fault, query in _FAULTS.items()}
        finally:
            await connection.close()
    there = {row["id"]: row["content"] for row in rows}
    return Outcome(
        lost=sum(there.get(memory_id) != content for memory_id, content in load.stored.items()),
        doubled=sum(count - 1 for count in Counter(there.values()).values()),
        faults={fault: count for fault, count in counts.items() if count},
    )


async def measure(rounds: int, seed: int, *, progress: Callable[[str], None] = print) -> tuple[str, bool]:
    """Kill ``rounds`` times; returns the report and whether all went well."""
    chance = random.Random(seed)
    recoveries: dict[Part, list[float]] = {part: [] for part in PARTS}
    with service_folder() as folder:
        service = Service(folder)
        service.start()
        await service.ready()
        try:
            async with storing(service) as load:
                for number in range(1, rounds + 1):
                    part = chance.choice(PARTS)
                    stores = chance.randint(1, _MOST_STORES_BEFORE_A_KILL)
                    recoveries[part].append(await kill_and_recover(service, part, load, after_stores=stores))
                    progress(f"{number}: {part} killed, stores again after {recoveries[part][-1]:.1f} s")
        finally:
            await asyncio.to_thread(service.stop)
        outcome = await inspect(service, load)
    lines = [
        "# Kills under load",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}. {describe()}.",
        f"{rounds} kills (SIGKILL, seed {seed}) while {_CALLERS} callers store without pause.",
        "",
        "| killed | times | stores acknowledged again after, median | at most |",
        "|---|---|---|---|",
        *(
            f"| {part} | {len(times)} | {sorted(times)[len(times) // 2]:.1f} s | {max(times):.1f} s |"
            for part, times in recoveries.items()
            if times
        ),
        "",
        f"Acknowledged: {len(load.stored)} memories; {load.repeats} calls had to be repeated.",
        f"Lost: {outcome.lost}. Stored twice: {outcome.doubled}. Broken invariants: {outcome.faults or 'none'}.",
        "",
    ]
    return "\n".join(lines), outcome.clean


async def _store_until(stop: asyncio.Event, client: AsyncClient, caller: int, load: Load) -> None:
    while not stop.is_set():
        load.sent += 1
        content, request_id = f"Fact {load.sent} as noted by caller {caller}.", str(uuid4())
        while True:
            try:
                answer = await client.store(content, on_duplicate="keep-both", request_id=request_id)
            except _RETRIED:
                load.repeats += 1
            else:
                load.stored[answer.memory.id] = content
                break


async def _main() -> int:
    parser = argparse.ArgumentParser(description="Kills under load")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path)
    arguments = parser.parse_args()
    report, clean = await measure(arguments.rounds, arguments.seed)
    print(report)
    if arguments.report:
        arguments.report.write_text(report)
    return 0 if clean else 1


if __name__ == "__main__":
    raise SystemExit(asyncio.run(_main()))
