"""The supervisor as a process of its own, with workers of a few lines."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import lorebank_server
from lorebank_server.postgres.orphans import running_in

SERVER_SOURCE = str(Path(lorebank_server.__file__).parents[1])
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals the children of a dead process")

SUPERVISOR = """
import logging, os, sys
from pathlib import Path
from lorebank_server.supervisor import supervise
folder, database_url, worker, workers = sys.argv[1:]
logging.basicConfig(level=logging.INFO)
command = [sys.executable, "-c", worker, folder]
sys.exit(supervise(
    data_dir=Path(folder) / "data", database_url=database_url or None, worker_command=command, env=os.environ,
    worker_variables=[{"NUMBER": str(number)} for number in range(int(workers))],
))
"""
WORKER = """
import asyncio, json, os, signal, sys, time
from pathlib import Path
import asyncpg
folder = Path(sys.argv[1])
url = os.environ["LOREBANK_DATABASE_URL"]
def announce():
    descriptors = [os.path.realpath(f"/proc/self/fd/{number}") for number in range(3, 64)]
    me = {name: os.environ[name] for name in ("NUMBER", "LOREBANK_SUPERVISED")} | {"pid": os.getpid(), "url": url}
    with (folder / "workers").open("a") as workers:
        print(json.dumps({**me, "descriptors": descriptors}), file=workers, flush=True)
"""
SLEEP = WORKER + "announce()\ntime.sleep(600)\n"
DRAIN = """
async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    connection = await asyncpg.connect(url)
    announce()
    await stop.wait()
    (folder / f"drained-{os.environ['NUMBER']}").write_text(str(await connection.fetchval("SELECT 6 * 7")))
asyncio.run(main())
"""
WRITE = """
lost = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
async def write(acknowledged):
    connection = await asyncpg.connect(url)
    await connection.execute("CREATE TABLE IF NOT EXISTS row (number bigint)")
    while True:
        number = time.monotonic_ns()
        await connection.execute("INSERT INTO row VALUES ($1)", number)
        print(number, file=acknowledged, flush=True)
        if (folder / "check").exists():
            (folder / "check").unlink()
            stored = await connection.fetch("SELECT number FROM row")
            (folder / "stored.tmp").write_text(" ".join(str(row["number"]) for row in stored))
            (folder / "stored.tmp").rename(folder / "stored")
async def main():
    announce()
    with (folder / "acknowledged").open("a") as acknowledged:
        while True:
            try:
                await write(acknowledged)
            except lost:
                await asyncio.sleep(0.02)
asyncio.run(main())
"""


class Supervised:
    """A supervisor under test, and what its workers announced."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cluster = folder / "data" / "postgres"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, worker: str, *, database_url: str = "", workers: int = 1) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-c", SUPERVISOR, str(self.folder), database_url, worker, str(workers)]
        self.process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": SERVER_SOURCE})
        return self.process

    def workers(self) -> list[dict[str, Any]]:
        path = self.folder / "workers"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def wait_for_workers(self, count: int) -> list[dict[str, Any]]:
        wait_until(lambda: len(self.workers()) >= count)
        return self.workers()

    def postmaster_pid(self) -> int:
        return int((self.cluster / "postmaster.pid").read_text().partition("\n")[0])

    def survivors(self) -> list[str]:
        """Everything that names the folder on its command line or runs in the cluster."""
        found = [f"postgres {pid}" for pid in running_in(self.cluster)]
        for process in psutil.process_iter(["cmdline", "status"]):
            ended = process.info["status"] == psutil.STATUS_ZOMBIE
            if not ended and str(self.folder) in " ".join(process.info["cmdline"] or ()):
                found.append(str(process))
        return found


@pytest.fixture
def supervised() -> Iterator[Supervised]:
    folder = Path(tempfile.mkdtemp(prefix="lb-"))
    folder.chmod(0o755)
    under_test = Supervised(folder)
    yield under_test
    if under_test.process is not None:
        under_test.process.kill()
        under_test.process.wait()
    assert wait_until(lambda: under_test.survivors() == []), under_test.survivors()
    shutil.rmtree(folder)


def wait_until(condition: Callable[[], bool], timeout_s: float = 20.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def is_dead(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_worker_before_postgres(supervised: Supervised, number: signal.Signals):
    process = supervised.start(WORKER + DRAIN)
    assert 1 == len(supervised.wait_for_workers(1))
    process.send_signal(number)
    assert process.wait(20) == 0
    assert (supervised.folder / "drained-0").read_text() == "42"
    assert supervised.survivors() == []


@linux_only
def test_killed_it_leaves_nothing_and_starts_again_at_once(supervised: Supervised):
    first = supervised.start(SLEEP)
    supervised.wait_for_workers(1)
    first.kill()
    first.wait()
    second = supervised.start(SLEEP)
    workers = supervised.wait_for_workers(2)
    assert 2 == len(workers)
    assert wait_until(lambda: is_dead(workers[0]["pid"]))
    second.kill()
    second.wait()
    assert wait_until(lambda: supervised.survivors() == []), supervised.survivors()


def test_the_worker_gets_its_environment_and_no_descriptor(supervised: Supervised):
    supervised.start(SLEEP)
    (worker,) = supervised.wait_for_workers(1)
    assert str(worker["url"]).startswith("postgresql://lorebank@/lorebank?host=")
    assert worker["LOREBANK_SUPERVISED"] == "1"
    assert [] == [path for path in worker["descriptors"] if path.startswith(str(supervised.folder / "data"))]


def test_a_dead_worker_is_started_again_while_postgres_stays(supervised: Supervised):
    supervised.start(SLEEP)
    (worker,) = supervised.wait_for_workers(1)
    postmaster = supervised.postmaster_pid()
    os.kill(worker["pid"], signal.SIGKILL)
    workers = supervised.wait_for_workers(2)
    assert 2 == len(workers)
    assert worker["pid"] != workers[1]["pid"]
    assert postmaster == supervised.postmaster_pid()


def test_a_dead_postgres_is_started_again_under_a_living_worker_without_losing_a_row(supervised: Supervised):
    acknowledged = supervised.folder / "acknowledged"

    def count() -> int:
        return len(acknowledged.read_text().splitlines()) if acknowledged.exists() else 0

    supervised.start(WORKER + WRITE)
    assert wait_until(lambda: count() > 20)
    postmaster = supervised.postmaster_pid()
    os.kill(postmaster, signal.SIGKILL)
    assert wait_until(lambda: is_dead(postmaster))
    before = count()
    assert wait_until(lambda: count() > before + 20)
    (supervised.folder / "check").touch()
    expected = set(acknowledged.read_text().split())
    assert wait_until((supervised.folder / "stored").exists)
    assert set() == expected - set((supervised.folder / "stored").read_text().split())
    assert postmaster != supervised.postmaster_pid()
    assert 1 == len(supervised.workers())


def test_a_worker_that_refuses_its_configuration_is_not_started_again(supervised: Supervised):
    process = supervised.start(WORKER + "announce()\nsys.exit(78)")
    assert process.wait(20) == 78
    assert 1 == len(supervised.workers())
    assert supervised.survivors() == []


def test_a_worker_that_keeps_dying_ends_it_all(supervised: Supervised):
    process = supervised.start(WORKER + "announce()\nsys.exit(3)")
    assert process.wait(30) == 1
    assert 6 == len(supervised.workers())
    assert supervised.survivors() == []


def test_a_second_signal_hurries(supervised: Supervised):
    process = supervised.start(WORKER + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEP)
    (worker,) = supervised.wait_for_workers(1)

    def dead_after_another_signal() -> bool:
        if not is_dead(worker["pid"]):
            process.send_signal(signal.SIGTERM)
            return False
        return True

    assert wait_until(dead_after_another_signal, timeout_s=10)
    assert process.wait(20) == 0
    assert supervised.survivors() == []


def test_a_signal_while_postgres_starts_stops_it(supervised: Supervised):
    process = supervised.start(SLEEP)
    assert wait_until((supervised.folder / "data" / "start.log").exists)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert supervised.survivors() == []


def test_with_a_database_elsewhere_it_starts_none(supervised: Supervised):
    process = supervised.start(SLEEP, database_url="postgresql://elsewhere/lorebank")
    (worker,) = supervised.wait_for_workers(1)
    assert worker["url"] == "postgresql://elsewhere/lorebank"
    assert not supervised.cluster.exists()
    process.terminate()
    assert process.wait(20) == 0


def test_a_second_supervisor_of_the_folder_is_refused(supervised: Supervised):
    first = supervised.start(SLEEP)
    supervised.wait_for_workers(1)
    command = [sys.executable, "-c", SUPERVISOR, str(supervised.folder), "", SLEEP, "1"]
    second = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": SERVER_SOURCE}, capture_output=True, text=True, check=False
    )
    assert second.returncode == 1
    assert f"is in use by process {first.pid}" in second.stderr
    assert 1 == len(supervised.workers())


def test_several_workers_drain_at_the_same_time_and_all_are_waited_for(supervised: Supervised):
    process = supervised.start(WORKER + DRAIN, workers=3)
    workers = supervised.wait_for_workers(3)
    assert {"0", "1", "2"} == {worker["NUMBER"] for worker in workers}
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert ["42"] * 3 == [(supervised.folder / f"drained-{number}").read_text() for number in range(3)]
    assert supervised.survivors() == []


def test_of_several_workers_the_dead_one_alone_is_started_again(supervised: Supervised):
    supervised.start(SLEEP, workers=2)
    before = {worker["NUMBER"]: worker["pid"] for worker in supervised.wait_for_workers(2)}
    os.kill(before["1"], signal.SIGKILL)
    after = supervised.wait_for_workers(3)
    assert ("1", 3) == (after[2]["NUMBER"], len(after))
    assert after[2]["pid"] != before["1"]
    assert not is_dead(before["0"])


def test_one_of_several_workers_that_keeps_dying_ends_them_all(supervised: Supervised):
    process = supervised.start(
        WORKER + "announce()\nif os.environ['NUMBER'] == '1': sys.exit(3)\ntime.sleep(600)", workers=2
    )
    assert process.wait(30) == 1
    assert 6 == sum(worker["NUMBER"] == "1" for worker in supervised.workers())
    assert 1 == sum(worker["NUMBER"] == "0" for worker in supervised.workers())
    assert supervised.survivors() == []
