"""The proxy's faults are what they say, or the tests that use it prove nothing."""

import asyncio
import contextlib

import pytest
from tcp_proxy import Fault, TcpProxy

SOON_S = 0.2


@contextlib.asynccontextmanager
async def echo():
    """Connects to a server that sends back what it gets."""

    async def serve(reader, writer):
        with contextlib.suppress(ConnectionError), contextlib.closing(writer):
            while data := await reader.read(1024):
                writer.write(data)
                await writer.drain()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    yield lambda: asyncio.open_connection("127.0.0.1", port)
    server.close()


@pytest.fixture
async def proxy():
    async with echo() as connect, TcpProxy(connect, latency_s=SOON_S) as running:
        yield running


@pytest.fixture
async def dial(proxy):
    opened = []

    async def connect():
        streams = await asyncio.open_connection("127.0.0.1", proxy.port)
        opened.append(streams[1])
        return streams

    yield connect
    for writer in opened:
        writer.transport.abort()


async def ask(streams, *, within=5.0):
    """What comes back for a word: itself, nothing at the end, or None when nothing came in time."""
    reader, writer = streams
    writer.write(b"word")
    try:
        async with asyncio.timeout(within):
            return await reader.read(4)
    except TimeoutError:
        return None


async def is_cut(streams):
    try:
        return await ask(streams) == b""
    except ConnectionError:
        return True


async def test_it_passes_on_what_it_gets(proxy, dial):
    assert b"word" == await ask(await dial())
    assert (1, 4) == (proxy.accepted, proxy.received_bytes)


async def test_refused_and_served_again_on_the_same_port(proxy, dial):
    old = await dial()
    await ask(old)
    await proxy.suffer(Fault.REFUSED)
    assert await is_cut(old)
    with pytest.raises(ConnectionRefusedError):
        await dial()
    await proxy.heal()
    assert b"word" == await ask(await dial())


async def test_reset_cuts_old_and_new_connections(proxy, dial):
    old = await dial()
    await ask(old)
    await proxy.suffer(Fault.RESET)
    assert await is_cut(old)
    with contextlib.suppress(ConnectionError):
        assert await is_cut(await dial())
    await proxy.heal()
    assert b"word" == await ask(await dial())


async def test_slow_delays_each_way(proxy, dial):
    streams = await dial()
    await proxy.suffer(Fault.SLOW)
    begun = asyncio.get_running_loop().time()
    assert b"word" == await ask(streams)
    assert 2 * SOON_S <= asyncio.get_running_loop().time() - begun


async def test_a_black_hole_swallows_everything_and_never_gives_it_back(proxy, dial):
    old = await dial()
    await ask(old)
    await proxy.suffer(Fault.BLACK_HOLE)
    meanwhile = await dial()
    assert [None, None] == [await ask(streams, within=SOON_S) for streams in (old, meanwhile)]
    await proxy.heal()
    assert [None, None] == [await ask(streams, within=SOON_S) for streams in (old, meanwhile)]
    assert b"word" == await ask(await dial())


async def test_an_answer_is_cut_in_the_middle_once(proxy, dial):
    streams = await dial()
    proxy.cut_after(6)
    assert b"word" == await ask(streams)
    streams[1].write(b"word")
    assert b"wo" == await streams[0].read(4)
    assert await is_cut(streams)
    assert b"word" == await ask(await dial())
