from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from lorebank_server.ports.backlog import Backlog
from lorebank_server.telemetry.observed import observe

NOW = datetime(2026, 1, 15, tzinfo=UTC)


@dataclass
class Pool:
    size: int = 0
    idle: int = 0
    waiting: int = 0

    def get_size(self) -> int:
        return self.size

    def get_idle_size(self) -> int:
        return self.idle

    def get_max_size(self) -> int:
        return 8


@dataclass
class Cache:
    hits: int = 0
    misses: int = 0


@dataclass
class Watched:
    requests: Pool
    cache: Cache
    backlog: Backlog
    calls: int = 0


@pytest.fixture
def watched(measured) -> Watched:
    parts = Watched(Pool(), Cache(), Backlog())
    observe(
        measured.provider,
        pools={"requests": parts.requests, "vectors": Pool(size=2, idle=2)},
        caches={"query": parts.cache},
        backlog=parts.backlog,
        calls_under_way=lambda: parts.calls,
        clock=lambda: NOW,
    )
    return parts


def test_pools_are_told_apart_by_name_and_connections_by_use(measured, watched):
    watched.requests.size, watched.requests.idle, watched.requests.waiting = 5, 2, 7
    connections = {
        ("requests", "idle"): 2,
        ("requests", "used"): 3,
        ("vectors", "idle"): 2,
        ("vectors", "used"): 0,
    }
    assert connections == measured.values("db.client.connection.count")
    assert {("requests",): 7, ("vectors",): 0} == measured.values("db.client.connection.pending_requests")
    assert {("requests",): 8, ("vectors",): 8} == measured.values("db.client.connection.max")


def test_lookups_are_told_apart_by_their_result(measured, watched):
    watched.cache.hits, watched.cache.misses = 3, 4
    lookups = {("hit", "query"): 3, ("miss", "query"): 4}
    assert lookups == measured.values("lorebank.embedding.cache.lookups")


def test_calls_under_way_are_as_many_as_there_are(measured, watched):
    watched.calls = 3
    assert {(): 3} == measured.values("lorebank.rpc.active")


@pytest.mark.usefixtures("watched")
def test_nothing_is_said_of_an_outbox_that_nobody_has_looked_at(measured):
    assert {} == measured.values("lorebank.outbox.rows")
    assert {} == measured.values("lorebank.outbox.lag")


def test_the_lag_grows_while_nobody_looks(measured, watched):
    watched.backlog.tell(rows=2, oldest_enqueue_time=NOW - timedelta(seconds=9))
    assert {(): 2} == measured.values("lorebank.outbox.rows")
    assert {(): 9.0} == measured.values("lorebank.outbox.lag")
    assert 19.0 == watched.backlog.lag_s(NOW + timedelta(seconds=10))


@pytest.mark.parametrize(
    ("rows", "oldest"), [(0, None), (0, NOW - timedelta(hours=1)), (3, None), (3, NOW + timedelta(seconds=1))]
)
def test_an_empty_outbox_and_a_clock_that_runs_behind_have_no_lag(measured, watched, rows, oldest):
    watched.backlog.tell(rows=rows, oldest_enqueue_time=oldest)
    assert {(): 0.0} == measured.values("lorebank.outbox.lag")


@pytest.mark.usefixtures("watched")
def test_the_process_tells_its_processor_time_and_memory(measured):
    times = measured.values("process.cpu.time")
    assert {("user",), ("system",)} == times.keys()
    assert times["user",] > 0
    (memory,) = measured.values("process.memory.usage").values()
    assert 1_000_000 < memory < 1_000_000_000_000
