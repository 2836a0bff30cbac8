"""``lorebank serve`` as a process of its own, for as long as it is measured."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from lorebank_server.bench.failures import BenchError
from lorebank_server.postgres.cluster import log_tail
from lorebank_server.postgres.process_guard import spawn

_START_TIMEOUT_S: Final = 120.0
_STOP_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.05
_LOG_TAIL_LINES: Final = 20

EXPORTING: Final[Mapping[str, str]] = {
    "OTEL_TRACES_EXPORTER": "otlp",
    "OTEL_METRICS_EXPORTER": "none",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
    "OTEL_TRACES_SAMPLER": "always_on",
    "OTEL_BSP_SCHEDULE_DELAY": "500",
    "OTEL_BSP_MAX_QUEUE_SIZE": "200000",
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "512",
}
"""Every span is kept, and so many may wait that none is dropped between two exports."""


class ServerFailedError(BenchError):
    """The server did not start, or not in time; the message ends with its log."""


@dataclass(frozen=True, slots=True)
class OwnServer:
    """A server that serves.

    Attributes:
        pid: Of the supervisor, the parent of all other processes of it.
    """

    address: str
    pid: int


@asynccontextmanager
async def own_server(folder: Path, *, endpoint: str, variables: Mapping[str, str]) -> AsyncIterator[OwnServer]:
    """A server on a free port of the loopback, over the data in ``folder``; it dies with this process.

    Enter it from the main thread. Of this process's environment it gets nothing that sets up a server or telemetry.

    Args:
        folder: Data below ``data``, log in ``server.log``.
        endpoint: Where it sends its spans.
        variables: Its settings.

    Raises:
        ServerFailedError: It ended, or did not serve in two minutes.
    """
    address = f"127.0.0.1:{free_port()}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LOREBANK_", "OTEL_"))}
    environment |= {**EXPORTING, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, **variables}
    environment |= {"LOREBANK_DATA_DIR": str(folder / "data"), "LOREBANK_LISTEN": address}
    log = folder / "server.log"
    with log.open("wb") as output:
        process = spawn(
            [sys.executable, "-m", "lorebank", "serve"],
            death_signal=signal.SIGTERM,
            env=environment,
            output=output,
            cwd=str(folder),
        )
    try:
        await _until_it_serves(process, address, log)
        yield OwnServer(address, process.pid)
    finally:
        process.terminate()
        try:
            await asyncio.to_thread(process.wait, _STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    """A port of the loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _until_it_serves(process: "subprocess.Popen[bytes]", address: str, log: Path) -> None:
    deadline = monotonic() + _START_TIMEOUT_S
    while not await _serves(address):
        if process.poll() is not None or monotonic() > deadline:
            raise ServerFailedError(f"The server does not serve:\n{log_tail(log, max_lines=_LOG_TAIL_LINES)}")
        await asyncio.sleep(_POLL_S)


async def _serves(address: str) -> bool:
    async with grpc.aio.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            answer = await HealthStub(channel).Check(HealthCheckRequest(), timeout=1.0)
        except grpc.aio.AioRpcError:
            return False
        return bool(answer.status == HealthCheckResponse.SERVING)
