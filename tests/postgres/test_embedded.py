"""The embedded Postgres, over the real binaries."""

import asyncio
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncpg
import psutil
import pytest

import lorebank_server
from lorebank_server.postgres import embedded, embedded_binaries
from lorebank_server.postgres.embedded import EmbeddedPostgres
from lorebank_server.postgres.embedded_errors import (
    DataDirectoryInUseError,
    DataDirectoryUnusableError,
    PostgresStartError,
    StartInterruptedError,
)
from lorebank_server.postgres.orphans import running_in

SERVER_SOURCE = str(Path(lorebank_server.__file__).parents[1])
IS_ROOT = os.geteuid() == 0
LOST_CONNECTION = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, ConnectionError)
needs_root = pytest.mark.skipif(not IS_ROOT, reason="only root changes accounts")
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals the children of a dead process")


@pytest.fixture
def parent() -> Iterator[Path]:
    """A folder that every account can pass; pytest's own is closed to Postgres' account."""
    folder = Path(tempfile.mkdtemp(prefix="lb-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def data_dir(parent: Path) -> Path:
    return parent / "data"


def wait_until(condition: Callable[[], bool], timeout_s: float = 10.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def hidden_names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


async def fetch_value(postgres: EmbeddedPostgres, sql: str) -> object:
    connection = await asyncpg.connect(postgres.dsn)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


async def test_serves_pgvector_and_leaves_no_process_and_no_socket(data_dir: Path):
    with embedded.start(data_dir) as postgres:
        assert (await fetch_value(postgres, "SELECT current_database()::text || current_user")) == "lorebanklorebank"
        await fetch_value(postgres, "CREATE EXTENSION vector")
        assert (await fetch_value(postgres, "SELECT '[1,2]'::vector <-> '[1,2]'")) == 0
        assert running_in(data_dir / "postgres") != []
    assert running_in(data_dir / "postgres") == []
    assert list((data_dir / "run").iterdir()) == []
    postgres.stop()


async def test_runs_with_its_settings_and_only_the_socket(data_dir: Path):
    expected = {
        "fsync": "on",
        "listen_addresses": "",
        "log_min_error_statement": "panic",
        "log_min_messages": "log",
        "max_connections": "60",
        "TimeZone": "UTC",
        "data_checksums": "on",
        "server_encoding": "UTF8",
    }
    with embedded.start(data_dir) as postgres:
        connection = await asyncpg.connect(postgres.dsn)
        names = list(expected)
        rows = await connection.fetch("SELECT n, current_setting(n) v FROM unnest($1::text[]) n", names)
        buffers = await connection.fetchval("SELECT pg_size_bytes(current_setting('shared_buffers'))")
        rules = await connection.fetch("SELECT type, database, auth_method FROM pg_hba_file_rules")
        locale = await connection.fetchval(
            "SELECT datlocale FROM pg_database WHERE datname = current_database() AND datlocprovider = 'b'"
        )
        await connection.close()
        network = [c for c in psutil.Process(postgres.pid).net_connections("inet") if c.status == "LISTEN"]
    assert expected == {row["n"]: row["v"] for row in rows}
    eighth = psutil.virtual_memory().total // 8
    assert buffers == pytest.approx(min(2 * 2**30, max(128 * 2**20, eighth)), abs=2**20)
    assert [("local", ["all"], "trust")] == [tuple(rule) for rule in rules]
    assert locale == "C.UTF-8"
    assert network == []


async def test_texts_of_failing_statements_stay_out_of_the_log(data_dir: Path):
    with embedded.start(data_dir) as postgres:
        with pytest.raises(asyncpg.InvalidTextRepresentationError, match="hush"):
            await fetch_value(postgres, "SELECT 'hush'::int")
        with pytest.raises(asyncpg.RaiseError, match="hush"):
            await fetch_value(postgres, "DO $$ BEGIN RAISE EXCEPTION 'hush' USING DETAIL = 'hush'; END $$")
    logs = "".join(log.read_text() for log in (data_dir / "log").iterdir())
    assert "database system is ready" in logs
    assert "hush" not in logs


async def test_a_second_start_finds_the_rows_and_removes_what_an_interrupted_one_left(data_dir: Path):
    with embedded.start(data_dir) as postgres:
        await fetch_value(postgres, "CREATE TABLE kept AS SELECT 7 AS number")
    (data_dir / ".initdb-left").mkdir()
    (data_dir / ".pgsql-left").mkdir()
    with embedded.start(data_dir) as postgres:
        assert (await fetch_value(postgres, "SELECT number FROM kept")) == 7
    assert hidden_names(data_dir) == []


def test_a_second_owner_is_refused_until_the_first_stops(data_dir: Path):
    with embedded.start(data_dir):
        with pytest.raises(DataDirectoryInUseError) as refused:
            embedded.start(data_dir)
        assert (data_dir, os.getpid()) == (refused.value.data_dir, refused.value.owner_pid)
        assert f"{data_dir} is in use by process {os.getpid()}" in str(refused.value)
    embedded.start(data_dir).stop()


async def test_no_acknowledged_row_is_lost_when_the_postmaster_is_killed(data_dir: Path):
    acknowledged: list[int] = []

    async def write() -> None:
        connection = await asyncpg.connect(postgres.dsn)
        for number in range(1_000_000):
            try:
                await connection.execute("INSERT INTO row VALUES ($1)", number)
            except LOST_CONNECTION:
                return
            acknowledged.append(number)
            if number == 50:
                os.kill(postgres.pid, signal.SIGKILL)

    async def hog() -> None:
        """A backend too busy to notice that its postmaster is gone."""
        connection = await asyncpg.connect(postgres.dsn)
        with pytest.raises(LOST_CONNECTION):
            await connection.fetchval("SELECT count(*) FROM generate_series(1, 1e12)")

    with embedded.start(data_dir) as postgres:
        await fetch_value(postgres, "CREATE TABLE row (number int)")
        dsn, first_pid = postgres.dsn, postgres.pid
        busy = asyncio.create_task(hog())
        await write()
        assert wait_until(lambda: not postgres.is_running())
        postgres.launch()
        await busy
        assert dsn == postgres.dsn
        assert first_pid != postgres.pid
        connection = await asyncpg.connect(dsn)
        stored = {row["number"] for row in await connection.fetch("SELECT number FROM row")}
        await connection.close()
    assert set() == set(acknowledged) - stored
    assert len(acknowledged) > 50


@pytest.mark.parametrize("is_zombie", [False, True])
def test_a_pid_file_that_names_another_process_of_the_account_is_no_server(data_dir: Path, is_zombie: bool):
    embedded.start(data_dir).stop()
    owner = (data_dir / "postgres").stat()
    user = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []} if IS_ROOT else {}
    command = ["/bin/sleep", "0" if is_zombie else "60"]
    with subprocess.Popen(command, **user) as bystander:
        if is_zombie:
            assert wait_until(lambda: psutil.Process(bystander.pid).status() == psutil.STATUS_ZOMBIE)
        pid_file = data_dir / "postgres" / "postmaster.pid"
        pid_file.write_text(f"{bystander.pid}\n{data_dir}/postgres\n1\n5432\n{data_dir}/run\n\n1 1\nready   \n")
        with embedded.start(data_dir) as postgres:
            assert bystander.pid != postgres.pid
            assert bystander.poll() is None or is_zombie
        bystander.kill()


def test_a_server_that_runs_without_an_owner_is_ended(data_dir: Path):
    with embedded.start(data_dir) as postgres:
        program = str(postgres._programs / "postgres")
    owner = (data_dir / "postgres").stat()
    user = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []} if IS_ROOT else {}
    command = [program, "-D", str(data_dir / "postgres"), "-c", f"unix_socket_directories={data_dir}/run"]
    command += ["-c", "listen_addresses="]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd="/", **user) as orphan:
        pid_file = data_dir / "postgres" / "postmaster.pid"
        assert wait_until(lambda: pid_file.exists() and "ready" in pid_file.read_text())
        with embedded.start(data_dir) as postgres:
            assert orphan.poll() is not None
            assert postgres.is_running()


@linux_only
@pytest.mark.parametrize("starts_again", [True, False])
def test_a_killed_owner_takes_postgres_and_a_busy_backend_along(data_dir: Path, starts_again: bool):
    script = """
import asyncio, sys
from pathlib import Path
import asyncpg
from lorebank_server.postgres import embedded
async def main():
    connection = await asyncpg.connect(embedded.start(Path(sys.argv[1])).dsn)
    print("ready", flush=True)
    await connection.fetchval("SELECT count(*) FROM generate_series(1, 1e12)")
asyncio.run(main())
"""
    with start_script(script, str(data_dir)) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "ready\n"
        assert running_in(data_dir / "postgres") != []
        owner.kill()
    if starts_again:
        embedded.start(data_dir).stop()
    assert wait_until(lambda: running_in(data_dir / "postgres") == [])


def start_script(script: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, "PYTHONPATH": SERVER_SOURCE},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_failed_start_says_why_and_gives_the_folder_up(data_dir: Path):
    with pytest.raises(PostgresStartError, match=r'invalid value for parameter "max_connections": "many"'):
        embedded.start(data_dir, settings={"max_connections": "many"})
    for segment in (data_dir / "postgres" / "pg_wal").glob("0*"):
        segment.unlink()
    with pytest.raises(PostgresStartError, match="could not locate a valid checkpoint record"):
        embedded.start(data_dir)
    (data_dir / "postgres" / "PG_VERSION").write_text("17\n")
    with pytest.raises(PostgresStartError, match="made by Postgres 17"):
        embedded.start(data_dir)
    assert running_in(data_dir / "postgres") == []


def test_giving_up_while_it_starts_leaves_nothing_running(data_dir: Path):
    with pytest.raises(StartInterruptedError):
        embedded.start(data_dir, interrupted=lambda: True)
    assert running_in(data_dir / "postgres") == []
    embedded.start(data_dir).stop()


def test_another_thread_than_the_main_one_is_refused(data_dir: Path):
    refusals: list[str] = []

    def attempt() -> None:
        try:
            embedded.start(data_dir)
        except RuntimeError as error:
            refusals.append(str(error))

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    assert ["a guarded child must be started from the main thread"] == refusals


@pytest.mark.parametrize("name", ["n" * 90, "a,b"])
async def test_a_path_that_is_no_socket_address_gets_a_short_one_and_removes_it(parent: Path, name: str):
    with embedded.start(parent / name) as postgres:
        folder = (parent / name / "run").readlink()
        assert (await fetch_value(postgres, "SELECT 1")) == 1
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not folder.exists()
    assert not (parent / name / "run").is_symlink()


async def test_odd_characters_in_the_path_are_quoted(parent: Path):
    with embedded.start(parent / "a b:%é&") as postgres:
        assert (await fetch_value(postgres, "SELECT 1")) == 1


@needs_root
def test_as_root_only_the_data_folder_changes_and_only_postgres_account_can_enter(parent: Path, data_dir: Path):
    before = {path: path.stat() for path in (parent, *parent.parents)}
    with embedded.start(data_dir, "nobody") as postgres:
        assert psutil.Process(postgres.pid).username() == "nobody"
        inside = {path.name: path.stat() for path in data_dir.iterdir()}
    after = {path: path.stat() for path in before}
    assert {p: (s.st_mode, s.st_uid, s.st_gid) for p, s in before.items()} == {
        p: (s.st_mode, s.st_uid, s.st_gid) for p, s in after.items()
    }
    for name in ("postgres", "run", "log"):
        assert (inside[name].st_uid, stat.S_IMODE(inside[name].st_mode)) == (inside["postgres"].st_uid, 0o700)
    assert (0, 0o710) == (data_dir.stat().st_uid, stat.S_IMODE(data_dir.stat().st_mode))
    with embedded.start(data_dir) as postgres:
        assert psutil.Process(postgres.pid).username() == "nobody"


@needs_root
def test_as_root_a_folder_below_a_closed_one_is_refused_and_not_made(parent: Path):
    home = parent / "home"
    home.mkdir(mode=0o700)
    with pytest.raises(DataDirectoryUnusableError, match=rf"cannot enter {home}.*LOREBANK_DATA_DIR"):
        embedded.start(home / "share" / "data")
    assert list(home.iterdir()) == []
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


@needs_root
def test_as_root_a_closed_folder_with_other_files_is_left_alone(parent: Path):
    home = parent / "home"
    home.mkdir(mode=0o700)
    (home / "letter").touch()
    with pytest.raises(DataDirectoryUnusableError, match="holds other files"):
        embedded.start(home)
    assert ["letter"] == [path.name for path in home.iterdir()]
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


@needs_root
def test_as_root_programs_below_a_closed_folder_are_copied_once(
    parent: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
):
    wheel = embedded_binaries.wheel_folder()
    home = parent / "home"
    home.mkdir(mode=0o700)
    ignored = shutil.ignore_patterns("pginstall", "include", "*.a")
    shutil.copytree(wheel, home / wheel.name, ignore=ignored)
    shutil.copytree(wheel.with_name(wheel.name + ".libs"), home / (wheel.name + ".libs"))
    monkeypatch.setattr(embedded_binaries, "wheel_folder", lambda: home / wheel.name)
    (data_dir / "pgsql-old").mkdir(parents=True)
    data_dir.chmod(0o755)
    with embedded.start(data_dir) as postgres:
        program = Path(psutil.Process(postgres.pid).exe())
    assert program.is_relative_to(data_dir)
    copied = program.stat()
    with embedded.start(data_dir) as postgres:
        assert program == Path(psutil.Process(postgres.pid).exe())
    assert (copied.st_ino, copied.st_ctime_ns) == (program.stat().st_ino, program.stat().st_ctime_ns)
    assert 1 == len(list(data_dir.glob("pgsql-*")))


@needs_root
@pytest.mark.parametrize(
    ("run_as", "message"), [("root", "refuses to be root"), ("no-such-account", "there is no such account")]
)
def test_as_root_an_account_that_will_not_do_is_refused(data_dir: Path, run_as: str, message: str):
    with pytest.raises(DataDirectoryUnusableError, match=message):
        embedded.start(data_dir, run_as)
    assert not data_dir.exists()


@needs_root
def test_an_ordinary_user_runs_it_as_itself(parent: Path):
    script = """
import asyncio, os, pwd, sys
from pathlib import Path
import asyncpg, asyncpg.connect_utils
from lorebank_server.postgres import embedded
user = pwd.getpwnam("nobody")
os.setgroups([]); os.setgid(user.pw_gid); os.setuid(user.pw_uid); os.chdir("/")
async def main():
    with embedded.start(Path(sys.argv[1])) as postgres:
        connection = await asyncpg.connect(postgres.dsn)
        print(await connection.fetchval("SELECT 6 * 7"))
        await connection.close()
asyncio.run(main())
"""
    home = parent / "home"
    home.mkdir(mode=0o700)
    shutil.chown(home, "nobody")
    with start_script(script, str(home / "share" / "data")) as process:
        answer, _ = process.communicate(timeout=30)
    assert ("42\n", 0) == (answer, process.returncode)
    assert running_in(home / "share" / "data" / "postgres") == []
    assert stat.S_IMODE((home / "share" / "data").stat().st_mode) == 0o700
