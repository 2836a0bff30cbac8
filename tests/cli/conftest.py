"""The ``lorebank`` command as its users run it: a process of its own."""

import asyncio
import json
import os
import pty
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[list[str]]:
        return [line.split("\t") for line in self.out.splitlines()]

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Awaitable[Outcome]]


def environment(**variables: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("LOREBANK_")}
    return inherited | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "error"} | variables


async def run(*arguments: str, stdin: str | bytes = b"", **variables: str) -> Outcome:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "lorebank", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(**variables),
    )
    out, err = await process.communicate(stdin.encode() if isinstance(stdin, str) else stdin)
    return Outcome(process.returncode or 0, out.decode(), err.decode())


@pytest.fixture
def command() -> Command:
    """Runs a command line without a server."""
    return run


@pytest.fixture
def lorebank(server: Any) -> Command:
    """Runs a command line against the server."""

    async def start(*arguments: str, stdin: str | bytes = b"") -> Outcome:
        return await run(*arguments, stdin=stdin, LOREBANK_SERVER=server.address)

    return start


@pytest.fixture
def terminal(server: Any) -> Callable[..., Awaitable[str]]:
    """Runs a command line on a terminal of 60 columns, and returns what the terminal showed."""

    async def start(*arguments: str) -> str:
        ours, theirs = pty.openpty()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "lorebank", *arguments),
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                env=environment(LOREBANK_SERVER=server.address, COLUMNS="60", TERM="xterm"),
            )
        finally:
            os.close(theirs)
        shown = await asyncio.to_thread(_read, ours)
        await process.wait()
        return shown

    return start


def _read(descriptor: int) -> str:
    """Everything a terminal shows until its last user has gone, which Linux tells as an error."""
    parts = []
    while True:
        try:
            part = os.read(descriptor, 65536)
        except OSError:
            break
        if not part:
            break
        parts.append(part)
    os.close(descriptor)
    return b"".join(parts).decode()
