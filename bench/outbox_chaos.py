"""Whether a vector store ever drifts from Postgres: kills and stalls under load, then every point is compared.

    python -m bench.outbox_chaos [--rounds N] [--seed N] [--qdrant-version V] [--report FILE]

Callers store, change, delete and vote without pause, and ask for what was just acknowledged. Each round SIGKILLs the
worker (and its drainer with it), Postgres, the supervisor or the vector store at a random point of that stream, or
stops the vector store for a while, which then carries out what it was sent long ago. The store is the stand-in for
Qdrant, a process of its own with its points on disk; said to be 1.15, it compares no versions. At the end nothing may
wait any more, and each point must be of its vector's version.
"""

import argparse
import asyncio
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any, Final
from uuid import UUID, uuid4

import asyncpg

from bench.service import PARTS, Part, Service, free_port, service_folder, until
from lorebank import AsyncClient
from lorebank.errors import Aborted, DeadlineExceeded, FailedPrecondition, Unavailable
from lorebank_server.bench.corpus import texts
from lorebank_server.bench.machine import describe
from lorebank_server.ports.vector_store import Generation
from lorebank_server.postgres import embedded
from lorebank_server.postgres.outbox import UNCERTAIN_FOR_S
from lorebank_server.vectors import QdrantSpec, open_store

_CALLERS: Final = 4
_CALL_TIMEOUT_S: Final = 5.0
_MOST_WRITES_BEFORE_A_KILL: Final = 40
_RECOVERY_TIMEOUT_S: Final = 90.0
_RETRIED: Final = (Unavailable, DeadlineExceeded, Aborted)
_KILLED_STORE: Final = "vector store"
_STALLED_STORE: Final = "vector store, stalled"
_PAGE: Final = 1000


class VectorStoreProcess:
    """The stand-in for Qdrant on one port and one folder, however often it is started."""

    def __init__(self, folder: Path, *, version: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = [
            *(sys.executable, "-m", "bench.qdrant_double", "--version", version),
            *("--port", str(self.port), "--path", str(folder / "points")),
        ]
        self._log = folder / "vector-store.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(self._command, stdout=output, stderr=output)

    def kill(self) -> None:
        self._send(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()

    def stall(self) -> None:
        self._send(signal.SIGSTOP)

    def go_on(self) -> None:
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)


class SearchingOutside(Service):
    """A server that searches a vector store outside of Postgres."""

    def __init__(self, folder: Path, store: VectorStoreProcess) -> None:
        super().__init__(folder)
        self._store = store

    def environment(self, **variables: str) -> dict[str, str]:
        return super().environment(
            LOREBANK_QDRANT_URL=self._store.url, LOREBANK_QDRANT_WRITE_TIMEOUT_S="3", **variables
        )


@dataclass
class Load:
    """What the callers did.

    Attributes:
        writes: Acknowledged calls that changed something.
        stored: Content by id of every acknowledged memory.
        asked: Finds for a memory just acknowledged; those that were told of a degradation left out.
        missed: Those that did not find it.
    """

    writes: int = 0
    stored: dict[str, str] = field(default_factory=dict)
    asked: int = 0
    missed: int = 0
    repeats: int = 0


@dataclass(frozen=True)
class Outcome:
    """What is there in the end, beside what should be."""

    points: int
    waiting: int
    missing: int
    orphaned: int
    outdated: int
    lost: int
    doubled: int

    @property
    def clean(self) -> bool:
        return not any((self.waiting, self.missing, self.orphaned, self.outdated, self.lost, self.doubled))


class _Caller:
    """Writes and asks until told to stop."""

    def __init__(self, client: AsyncClient, load: Load, number: int, seed: int) -> None:
        self._client = client
        self._load = load
        self._chance = random.Random(seed * 100 + number)
        self._texts = texts(seed * 100 + number)

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            content, request = f"{next(self._texts)} ({uuid4()})", str(uuid4())
            stored = await self._again(
                lambda: self._client.store(content, on_duplicate="keep-both", request_id=request)  # noqa: B023 - awaited before the next round
            )
            memory = stored.memory.id
            self._load.stored[memory] = content
            self._load.writes += 1
            if self._chance.random() < 0.3:
                await self._ask(memory, content)
            await self._change(memory)

    async def _change(self, memory: str) -> None:
        client, tag, request = self._client, f"t{self._chance.randrange(9)}", str(uuid4())
        match self._chance.randrange(5):
            case 0:
                await self._again(lambda: client.update(memory, tags=[tag], request_id=request))
            case 1:
                await self._again(lambda: client.delete(memory))
            case 2:
                await self._again(lambda: client.downvote(memory, run=request))
            case 3:
                await self._again(lambda: client.supersede([memory], f"No longer true: {tag}.", request_id=request))
            case _:
                return
        self._load.writes += 1

    async def _ask(self, memory: str, content: str) -> None:
        answer = await self._again(lambda: self._client.find(content, mode="semantic", limit=100, skip_usage=True))
        if not answer.degraded:
            self._load.asked += 1
            self._load.missed += memory not in {hit.memory.id for hit in answer.hits}

    async def _again(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Make a call until it is answered."""
        while True:
            try:
                return await call()
            except _RETRIED:
                self._load.repeats += 1
            except FailedPrecondition:
                return None  # done by an earlier try whose answer was lost


async def measure(rounds: int, seed: int, version: str, *, progress: Callable[[str], None] = print) -> tuple[str, bool]:
    """Kill and stall ``rounds`` times; returns the report and whether all went well."""
    chance = random.Random(seed)
    load, stop, seconds = Load(), asyncio.Event(), dict[str, list[float]]()
    with service_folder() as folder:
        store = VectorStoreProcess(folder, version=version)
        store.start()
        service = SearchingOutside(folder, store)
        service.start()
        await service.ready()
        try:
            async with AsyncClient(service.address, timeout_s=_CALL_TIMEOUT_S) as client, asyncio.TaskGroup() as tasks:
                for number in range(_CALLERS):
                    tasks.create_task(_Caller(client, load, number, seed).run(stop))
                try:
                    for number in range(1, rounds + 1):
                        part = chance.choice((*PARTS, _KILLED_STORE, _KILLED_STORE, _STALLED_STORE))
                        begin = perf_counter()
                        await _disturb(service, store, part, load, writes=chance.randint(1, _MOST_WRITES_BEFORE_A_KILL))
                        seconds.setdefault(part, []).append(perf_counter() - begin)
                        progress(f"{number}: {part}, {load.writes} writes")
                finally:
                    stop.set()
            progress("waiting for what may still be under way")
            await asyncio.sleep(UNCERTAIN_FOR_S + 15.0)
        finally:
            await asyncio.to_thread(service.stop)
        try:
            outcome = await _compare(service, store, load)
        finally:
            store.kill()
    return _report(rounds, seed, version, load, seconds, outcome), outcome.clean and not load.missed


async def _disturb(service: Service, store: VectorStoreProcess, part: str, load: Load, *, writes: int) -> None:
    """Disturb one part after some writes, and return when writes are acknowledged again (meanwhile, for the store)."""
    await _more(service, load, writes)
    if part == _KILLED_STORE:
        store.kill()
        await _more(service, load, writes)
        store.start()
    elif part == _STALLED_STORE:
        store.stall()
        await _more(service, load, writes)
        store.go_on()
    else:
        killed: Part = part  # type: ignore[assignment] # the store was dealt with above
        await until(lambda: service.kill(killed) or service.process.poll() is not None, timeout_s=_RECOVERY_TIMEOUT_S)
        await _more(service, load, _CALLERS + 1)


async def _more(service: Service, load: Load, writes: int) -> None:
    goal = load.writes + writes

    def reached() -> bool:
        if service.process.poll() is not None:
            service.start()
        return load.writes >= goal

    await until(reached, timeout_s=_RECOVERY_TIMEOUT_S)


async def _compare(service: Service, store: VectorStoreProcess, load: Load) -> Outcome:
    """Read both sides whole, the server being stopped."""
    with embedded.start(service.data_dir) as postgres:
        connection = await asyncpg.connect(postgres.dsn)
        try:
            contents = await connection.fetch("select id, body ->> 'content' as content from memories")
            kept = await connection.fetch(
                "select e.memory, e.version, e.model, m.dimensions from embeddings e "
                "join embedding_models m on m.number = e.model"
            )
            waiting = await connection.fetchval("select count(*) from outbox")
        finally:
            await connection.close()
    versions = {row["memory"]: row["version"] for row in kept}
    held: dict[UUID, int] = {}
    client = open_store(QdrantSpec(url=store.url))
    for generation in {Generation(row["model"], row["dimensions"]) for row in kept}:
        after: UUID | None = None
        while page := await client.scan(generation, space_id=None, after=after, limit=_PAGE):
            held.update((point.uid, point.version) for point in page)
            after = page[-1].uid
    await client.aclose()
    there = {row["id"]: row["content"] for row in contents}
    return Outcome(
        points=len(held),
        waiting=waiting,
        missing=len(versions.keys() - held.keys()),
        orphaned=len(held.keys() - versions.keys()),
        outdated=sum(held[uid] != versions[uid] for uid in versions.keys() & held.keys()),
        lost=sum(there.get(memory) != content for memory, content in load.stored.items()),
        doubled=sum(count - 1 for content, count in Counter(there.values()).items() if "(" in content),
    )


def _report(rounds: int, seed: int, version: str, load: Load, seconds: dict[str, list[float]], outcome: Outcome) -> str:
    lines = [
        "# Drift of the vector store under kills",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}. {describe()}.",
        f"{rounds} disturbances (seed {seed}) while {_CALLERS} callers write and ask without pause.",
        f"The stand-in for Qdrant says it is {version}.",
        "",
        "| disturbed | times |",
        "|---|---|",
        *(f"| {part} | {len(times)} |" for part, times in sorted(seconds.items())),
        "",
        f"Acknowledged: {load.writes} writes; {load.repeats} calls had to be repeated.",
        f"Asked for what was just acknowledged, without a word of degradation: {load.asked}; missed: {load.missed}.",
        f"Points: {outcome.points}.",
        f"Missing: {outcome.missing}. Orphaned: {outcome.orphaned}. Outdated: {outcome.outdated}.",
        f"Still waiting: {outcome.waiting}. Memories lost: {outcome.lost}, stored twice: {outcome.doubled}.",
        "",
    ]
    return "\n".join(lines)


async def _main() -> int:
    parser = argparse.ArgumentParser(description="Drift of the vector store under kills")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--qdrant-version", default="1.15.0")
    parser.add_argument("--report", type=Path)
    arguments = parser.parse_args()
    report, clean = await measure(arguments.rounds, arguments.seed, arguments.qdrant_version)
    print(report)
    if arguments.report:
        arguments.report.write_text(report)
    return 0 if clean else 1


if __name__ == "__main__":
    raise SystemExit(asyncio.run(_main()))
