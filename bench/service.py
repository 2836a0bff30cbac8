"""``lorebank serve`` as a process of its own in a folder of its own: to measure, to kill, and to start again."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from time import monotonic
from typing import Literal

import grpc
import psutil
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
POLL_S = 0.02

Part = Literal["worker", "postgres", "supervisor"]
PARTS: tuple[Part, ...] = ("worker", "postgres", "supervisor")


class Service:
    """A server on a free port of the loopback; starting it again keeps port and data."""

    def __init__(self, folder: Path) -> None:
        self.data_dir = folder / "data"
        self.log = folder / "server.log"
        self.address = f"127.0.0.1:{free_port()}"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def started(self) -> bool:
        """Whether it was ever started."""
        return self._process is not None

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        """The supervisor that was started last."""
        if self._process is None:
            raise RuntimeError("The server was never started.")
        return self._process

    def environment(self, **variables: str) -> dict[str, str]:
        """What this server's commands are started with."""
        own = {"LOREBANK_DATA_DIR": str(self.data_dir), "LOREBANK_LISTEN": self.address}
        return clean_environment() | own | variables

    def start(self, **variables: str) -> None:
        """Start it; ``ready`` says when it serves."""
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "lorebank", "serve"],
                env=self.environment(**variables),
                cwd=self._folder,
                stdout=output,
                stderr=output,
            )

    async def ready(self) -> None:
        """Return once it is healthy.

        Raises:
            RuntimeError: It ended, or took longer than a minute; the message ends with its log.
        """
        deadline = monotonic() + START_TIMEOUT_S
        while not await self._is_healthy():
            if self.process.poll() is not None or monotonic() > deadline:
                raise RuntimeError(f"The server does not serve:\n{self.log.read_text(errors='replace')}")
            await asyncio.sleep(POLL_S)

    def stop(self) -> int:
        """Ask it to stop, and return its exit code once it did."""
        self.process.terminate()
        return self.process.wait(STOP_TIMEOUT_S)

    def pids_of(self, part: Part) -> list[int]:
        """Pids of a part that runs now; more than one of several serving processes."""
        if self.process.poll() is not None:
            return []
        if part == "supervisor":
            return [self.process.pid]
        sign = "lorebank_server.worker" if part == "worker" else "postgres -D"
        return [child.pid for child in _children(self.process.pid) if sign in _command_of(child)]

    def pid_of(self, part: Part) -> int | None:
        """Pid of a part that runs now, of the first one if there are several."""
        return next(iter(self.pids_of(part)), None)

    def kill(self, part: Part) -> bool:
        """SIGKILL a part; false when it does not run at the moment."""
        pid = self.pid_of(part)
        if pid is None:
            return False
        os.kill(pid, signal.SIGKILL)
        if part == "supervisor":
            self.process.wait()
        return True

    def survivors(self) -> list[str]:
        """Live processes that have to do with the data folder, or were started by one that has."""
        found = []
        for process in psutil.process_iter(["cmdline", "environ", "status", "cwd"]):
            about = process.info
            if about["status"] == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
                continue
            traces = [*(about["cmdline"] or ()), about["cwd"] or "", *(about["environ"] or {}).values()]
            if any(str(self.data_dir) in trace for trace in traces):
                found.append(f"{process.pid} {' '.join(about['cmdline'] or ())}")
        return found

    async def _is_healthy(self) -> bool:
        async with grpc.aio.insecure_channel(self.address, options=[("grpc.enable_http_proxy", 0)]) as channel:
            try:
                answer = await HealthStub(channel).Check(HealthCheckRequest(), timeout=1.0)
            except grpc.aio.AioRpcError:
                return False
            return bool(answer.status == HealthCheckResponse.SERVING)


@contextmanager
def service_folder() -> Iterator[Path]:
    """A temporary folder that the account of an embedded Postgres may pass through, also when started by root."""
    folder = Path(tempfile.mkdtemp(prefix="lorebank-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def running_service(**variables: str) -> AsyncIterator[Service]:
    """A fresh server that serves; it and its folder are gone afterwards."""
    with service_folder() as folder:
        service = Service(folder)
        service.start(**variables)
        try:
            await service.ready()
            yield service
        finally:
            await asyncio.to_thread(service.stop)


async def until(condition: Callable[[], bool], *, timeout_s: float = 20.0) -> None:
    """Return once the condition holds.

    Raises:
        TimeoutError: It did not in time.
    """
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - what other processes do sets no event of ours
            await asyncio.sleep(POLL_S)


def clean_environment() -> dict[str, str]:
    """This process's environment without what would set up a server or its traces."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("LOREBANK_", "OTEL_"))}


def free_port() -> int:
    """A port of the loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _command_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children()
    except psutil.NoSuchProcess:
        return []
