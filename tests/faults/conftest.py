"""Servers with proxies in front of everything they depend on."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from faulty_world import World, faulty_world


@pytest.fixture(scope="session", autouse=True)
def _no_other_proxy() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        yield


@pytest.fixture(scope="session")
def open_world(database_factory, embedder):
    """Starts servers, each on a database of its own unless told; arguments go to ``faulty_world``."""

    @asynccontextmanager
    async def start(*, database: str = "", **arguments: Any) -> AsyncIterator[World]:
        async with faulty_world(database or await database_factory(), embedder, **arguments) as world:
            yield world

    return start
