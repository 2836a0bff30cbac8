"""A server in a temporary folder, for as long as the tour lasts."""

import asyncio
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from lorebank.client import AsyncClient
from lorebank.errors import DeadlineExceeded, Unavailable

_START_TIMEOUT_S = 120.0


@asynccontextmanager
async def own_server() -> AsyncIterator[tuple[AsyncClient, str]]:
    """A client of a fresh server and its address; the server, its Postgres and its folder are gone afterwards.

    Raises:
        RuntimeError: The server did not start; its log follows in the message.
    """
    folder = _passable_folder()
    address = f"127.0.0.1:{_free_port()}"
    log = folder / "server.log"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LOREBANK_")}
    environment |= {"LOREBANK_DATA_DIR": str(folder / "data"), "LOREBANK_LISTEN": address}
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "lorebank", "serve", env=environment, cwd=folder, stdout=output, stderr=output
        )
    try:
        async with AsyncClient(address) as client:
            await _until_it_answers(client, process, log)
            yield client, address
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
        shutil.rmtree(folder, ignore_errors=True)


async def _until_it_answers(client: AsyncClient, process: asyncio.subprocess.Process, log: Path) -> None:
    deadline = asyncio.get_running_loop().time() + _START_TIMEOUT_S
    while True:
        try:
            await client.spaces.get()
        except (Unavailable, DeadlineExceeded):
            if process.returncode is not None or asyncio.get_running_loop().time() > deadline:
                raise RuntimeError(f"The server did not start:\n{await asyncio.to_thread(log.read_text)}") from None
            await asyncio.sleep(0.1)
        else:
            return


def _passable_folder() -> Path:
    """A temporary folder that another account may pass through: as root, Postgres runs under one."""
    folder = Path(tempfile.mkdtemp(prefix="lorebank-demo-"))
    folder.chmod(0o755)
    return folder


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
