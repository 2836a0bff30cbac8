"""What the processes of a measurement use: processor time and memory."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Final

import psutil

SERVER: Final = "server"
POSTGRES: Final = "postgres"
LOAD_GENERATOR: Final = "load generator"

_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Usage:
    """What a group of processes used.

    Attributes:
        cores: Processor seconds per second.
        memory_mib: At the end; memory that processes share counts once.
    """

    name: str
    cores: float
    memory_mib: float


class Meter:
    """Watches this process and, where it is known, a supervisor with its serving processes and its Postgres."""

    def __init__(self, supervisor_pid: int | None) -> None:
        groups: dict[str, Callable[[], list[psutil.Process]]] = {LOAD_GENERATOR: lambda: [psutil.Process(os.getpid())]}
        if supervisor_pid is not None:
            supervisor = psutil.Process(supervisor_pid)
            groups = {
                SERVER: lambda: [supervisor, *(each for each in supervisor.children() if not _is_postgres(each))],
                POSTGRES: lambda: [
                    process
                    for each in supervisor.children()
                    if _is_postgres(each)
                    for process in (each, *each.children(recursive=True))
                ],
                **groups,
            }
        self._groups = groups
        self._begin = perf_counter()
        self._used_before: dict[str, float] = {}

    def begin(self) -> None:
        """Count from now on."""
        self._begin = perf_counter()
        self._used_before = {name: _cpu_seconds(group()) for name, group in self._groups.items()}

    def read(self) -> tuple[Usage, ...]:
        """What each group used since ``begin``."""
        seconds = perf_counter() - self._begin
        return tuple(
            Usage(name, (_cpu_seconds(group()) - self._used_before[name]) / seconds, _memory_mib(group()))
            for name, group in self._groups.items()
        )


def _is_postgres(process: psutil.Process) -> bool:
    try:
        return bool(process.name() == "postgres")
    except psutil.NoSuchProcess:
        return False


def _cpu_seconds(processes: list[psutil.Process]) -> float:
    """Processor seconds of living processes, and of those that Postgres has buried: connections come and go."""
    total = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
            total += times.user + times.system
            if _is_postgres(process):
                total += times.children_user + times.children_system
        except psutil.NoSuchProcess:
            continue
    return total


def _memory_mib(processes: list[psutil.Process]) -> float:
    total = 0
    for process in processes:
        try:
            full = process.memory_full_info()
            total += getattr(full, "pss", full.rss)
        except psutil.NoSuchProcess:
            continue
        except psutil.AccessDenied:
            total += process.memory_info().rss
    return total / _MIB
