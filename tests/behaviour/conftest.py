"""One server for the whole folder; its clock moves only forwards, and every test has a space of its own."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import grpc
import pytest
from spaces_apart import Caller, SpaceApart

from lorebank import AsyncClient
from lorebank.v1.space_pb2 import Space
from lorebank_server.config import Settings
from lorebank_server.serving import Running, running_server

OpenSpace = Callable[..., Awaitable[SpaceApart]]

_NUMBERS = count(1)


class ForwardClock:
    """The shared server's time: it stands still between the steps that tests make."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 15, 12, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **parts: float) -> None:
        self.now += timedelta(**parts)


@dataclass(frozen=True)
class Shared:
    """The server that the tests of this folder share."""

    address: str
    dsn: str
    running: Running
    operator: AsyncClient
    operator_secret: str
    channel: grpc.aio.Channel
    clock: ForwardClock


@pytest.fixture(scope="session")
async def shared(database_factory, embedder) -> AsyncIterator[Shared]:
    dsn, clock = await database_factory(), ForwardClock()
    settings = Settings(listen="127.0.0.1:0", database_pool_size=12, drain_grace_s=2.0)
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(running_server(settings, dsn, clock=clock, embedder=embedder))
        address = f"127.0.0.1:{running.port}"
        local = await stack.enter_async_context(AsyncClient(address))
        secret = (await local.keys.create("operator", roles=["admin"])).secret
        operator = await stack.enter_async_context(AsyncClient(address, api_key=secret))
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(address, options=options))
        yield Shared(address, dsn, running, operator, secret, channel, clock)


@pytest.fixture
async def open_space(shared: Shared) -> AsyncIterator[OpenSpace]:
    """Creates spaces; its arguments are their policies."""
    async with AsyncExitStack() as stack:

        async def create(**policies: Any) -> SpaceApart:
            space = await shared.operator.spaces.create(Space(id=f"apart-{next(_NUMBERS)}", **policies))
            return SpaceApart(space.id, shared.address, shared.dsn, shared.operator_secret, stack, shared.channel)

        yield create


@pytest.fixture
async def here(open_space: OpenSpace) -> SpaceApart:
    """A space of the test's own."""
    return await open_space()


@pytest.fixture
async def me(here: SpaceApart) -> Caller:
    """The admin of the test's own space, called tester."""
    return await here.caller("tester", role="admin")


@pytest.fixture
def time(shared: Shared) -> ForwardClock:
    """The shared server's clock."""
    return shared.clock
