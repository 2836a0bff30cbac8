"""What is looked at when metrics are collected, rather than measured when it happens.

All of it is of this process. Nothing is told apart by space, owner, project or key: those are without number.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation
from opentelemetry.semconv._incubating.attributes.cpu_attributes import CPU_MODE, CpuModeValues
from opentelemetry.semconv._incubating.attributes.db_attributes import (
    DB_CLIENT_CONNECTION_POOL_NAME,
    DB_CLIENT_CONNECTION_STATE,
    DbClientConnectionStateValues,
)
from opentelemetry.semconv._incubating.metrics.db_metrics import (
    DB_CLIENT_CONNECTION_COUNT,
    DB_CLIENT_CONNECTION_MAX,
    DB_CLIENT_CONNECTION_PENDING_REQUESTS,
)
from opentelemetry.semconv._incubating.metrics.process_metrics import PROCESS_CPU_TIME, PROCESS_MEMORY_USAGE

from lorebank_server.ports.backlog import Backlog
from lorebank_server.telemetry.metrics import SCHEMA_URL

_PAGES_OF_MEMORY: Final = Path("/proc/self/statm")

Callback = Callable[[CallbackOptions], Iterable[Observation]]


class ObservedPool(Protocol):
    """A pool of connections, as far as it is watched."""

    @property
    def waiting(self) -> int:
        """Tasks that wait for a connection."""
        ...

    def get_size(self) -> int:
        """Connections that are open."""
        ...

    def get_idle_size(self) -> int:
        """Open connections that nobody uses."""
        ...

    def get_max_size(self) -> int:
        """Most connections that it opens."""
        ...


class ObservedCache(Protocol):
    """A cache that counts."""

    hits: int
    misses: int


def observe(
    meter_provider: MeterProvider,
    *,
    pools: Mapping[str, ObservedPool],
    caches: Mapping[str, ObservedCache],
    backlog: Backlog,
    calls_under_way: Callable[[], int],
    clock: Callable[[], datetime],
) -> None:
    """Report these with every collection from now on; once in a process, since it cannot be taken back.

    Args:
        meter_provider: Where the meters come from.
        pools: Pools of connections to Postgres by name.
        caches: Caches of vectors by what they are of.
        backlog: What the vector index has not taken in.
        calls_under_way: How many calls are being answered.
        clock: The current time, in UTC.
    """
    meter = meter_provider.get_meter("lorebank", schema_url=SCHEMA_URL)
    meter.create_observable_up_down_counter(
        "lorebank.rpc.active",
        [lambda _: [Observation(calls_under_way())]],
        unit="{call}",
        description="Calls being answered, streams included.",
    )
    _observe_pools(meter, pools)
    meter.create_observable_counter(
        "lorebank.embedding.cache.lookups",
        [lambda _: _lookups(caches)],
        unit="{lookup}",
        description="Texts looked up in the caches of vectors, by whether the model was spared.",
    )
    _observe_backlog(meter, backlog, clock)
    _observe_process(meter)


def _observe_pools(meter: Meter, pools: Mapping[str, ObservedPool]) -> None:
    def each(count: Callable[[ObservedPool], int]) -> Callback:
        return lambda _: [
            Observation(count(pool), {DB_CLIENT_CONNECTION_POOL_NAME: name}) for name, pool in pools.items()
        ]

    meter.create_observable_up_down_counter(
        DB_CLIENT_CONNECTION_COUNT,
        [lambda _: _connections(pools)],
        unit="{connection}",
        description="Open connections to Postgres by pool and state.",
    )
    meter.create_observable_up_down_counter(
        DB_CLIENT_CONNECTION_MAX,
        [each(lambda pool: pool.get_max_size())],
        unit="{connection}",
        description="Most connections that a pool opens.",
    )
    meter.create_observable_up_down_counter(
        DB_CLIENT_CONNECTION_PENDING_REQUESTS,
        [each(lambda pool: pool.waiting)],
        unit="{request}",
        description="Tasks that wait for a connection of a pool.",
    )


def _connections(pools: Mapping[str, ObservedPool]) -> Iterable[Observation]:
    for name, pool in pools.items():
        idle = pool.get_idle_size()
        for state, count in (
            (DbClientConnectionStateValues.IDLE, idle),
            (DbClientConnectionStateValues.USED, max(0, pool.get_size() - idle)),
        ):
            attributes = {DB_CLIENT_CONNECTION_POOL_NAME: name, DB_CLIENT_CONNECTION_STATE: state.value}
            yield Observation(count, attributes)


def _lookups(caches: Mapping[str, ObservedCache]) -> Iterable[Observation]:
    for name, cache in caches.items():
        for result, count in (("hit", cache.hits), ("miss", cache.misses)):
            yield Observation(count, {"lorebank.embedding.input": name, "lorebank.cache.result": result})


def _observe_backlog(meter: Meter, backlog: Backlog, clock: Callable[[], datetime]) -> None:
    def rows(_: CallbackOptions) -> Iterable[Observation]:
        return [] if backlog.rows is None else [Observation(backlog.rows)]

    def lag(_: CallbackOptions) -> Iterable[Observation]:
        lag_s = backlog.lag_s(clock())
        return [] if lag_s is None else [Observation(lag_s)]

    meter.create_observable_gauge(
        "lorebank.outbox.rows",
        [rows],
        unit="{row}",
        description="Changes that the vector index has not taken in.",
    )
    meter.create_observable_gauge(
        "lorebank.outbox.lag",
        [lag],
        unit="s",
        description="Age of the oldest change that the vector index has not taken in.",
    )


def _observe_process(meter: Meter) -> None:
    meter.create_observable_counter(
        PROCESS_CPU_TIME,
        [_cpu_time],
        unit="s",
        description="Time that this process has kept processors busy.",
    )
    if _PAGES_OF_MEMORY.exists():
        meter.create_observable_up_down_counter(
            PROCESS_MEMORY_USAGE,
            [_memory],
            unit="By",
            description="Physical memory that this process uses.",
        )


def _cpu_time(_: CallbackOptions) -> Iterable[Observation]:
    times = os.times()
    yield Observation(times.user, {CPU_MODE: CpuModeValues.USER.value})
    yield Observation(times.system, {CPU_MODE: CpuModeValues.SYSTEM.value})


def _memory(_: CallbackOptions) -> Iterable[Observation]:
    resident_pages = int(_PAGES_OF_MEMORY.read_text(encoding="ascii").split()[1])
    yield Observation(resident_pages * os.sysconf("SC_PAGE_SIZE"))
