"""A proxy between two parties that can be slow, silent, rude or gone, and well again, while they talk."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Self

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]

_LINGER_NOT = struct.pack("ii", 1, 0)
_CHUNK_BYTES = 64 * 1024


class Fault(StrEnum):
    """What is wrong with the way between client and server."""

    REFUSED = "refused"
    """Nobody listens, and who was connected is cut off: the server's process is gone."""

    RESET = "reset"
    """Every connection, new or old, is cut off at once."""

    SLOW = "slow"
    """Every piece of data arrives ``latency_s`` later."""

    BLACK_HOLE = "black hole"
    """Nothing arrives any more. Connections of that time stay dead even afterwards, as if a firewall forgot them."""


class TcpProxy:
    """Listens on the loopback and passes on to a server; ``async with`` opens and closes it.

    Attributes:
        latency_s: What SLOW adds to every piece of data, in seconds.
        accepted: Connections taken since it was opened.
        received_bytes: From clients, whether passed on or not.
    """

    def __init__(self, connect: Connect, *, latency_s: float = 3.0) -> None:
        self.latency_s = latency_s
        self.accepted = 0
        self.received_bytes = 0
        self.port = 0
        self._connect = connect
        self._fault: Fault | None = None
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self._bytes_until_cut: int | None = None

    async def __aenter__(self) -> Self:
        await self._listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop_listening()
        await self._cut_all()

    async def suffer(self, fault: Fault) -> None:
        """From now on something is wrong, with what is connected too."""
        self._fault = fault
        if fault is Fault.REFUSED:
            await self._stop_listening()
        if fault in {Fault.REFUSED, Fault.RESET}:
            await self._cut_all()
        if fault is Fault.BLACK_HOLE:
            for link in self._links:
                link.dead = True

    async def heal(self) -> None:
        """From now on all is well with new connections."""
        self._fault = None
        self._bytes_until_cut = None
        if self._server is None:
            await self._listen()

    def cut_after(self, answered_bytes: int) -> None:
        """Pass on so many more bytes of the server's answers, then cut off the connection of the next one, once."""
        self._bytes_until_cut = answered_bytes

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop_listening(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()

    async def _cut_all(self) -> None:
        links = list(self._links)
        for link in links:
            link.cut()
        await asyncio.gather(*(link.ended.wait() for link in links))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self._fault is Fault.RESET:
            _reset(writer)
            return
        link = _Link(writer, dead=self._fault is Fault.BLACK_HOLE)
        self._links.add(link)
        try:
            link.task = asyncio.ensure_future(self._connect_and_pass(link, reader))
            await link.task
        except asyncio.CancelledError:
            if not link.was_cut:
                raise
        finally:
            self._links.discard(link)
            _reset(writer)
            if link.upstream is not None:
                _reset(link.upstream)
            link.ended.set()

    async def _connect_and_pass(self, link: "_Link", reader: asyncio.StreamReader) -> None:
        if link.dead:
            await _forever()
        upstream_reader, link.upstream = await self._connect()
        await asyncio.gather(self._pass_on(link, reader), self._answer(link, upstream_reader))

    async def _pass_on(self, link: "_Link", reader: asyncio.StreamReader) -> None:
        assert link.upstream is not None
        while data := await _read(reader):
            self.received_bytes += len(data)
            await self._suffered(link)
            if not link.dead:
                await _write(link.upstream, data)
        await self._hang_up(link)

    async def _answer(self, link: "_Link", reader: asyncio.StreamReader) -> None:
        while data := await _read(reader):
            await self._suffered(link)
            cut = self._bytes_until_cut is not None and len(data) > self._bytes_until_cut
            passed = data[: self._bytes_until_cut] if cut else data
            if self._bytes_until_cut is not None:
                self._bytes_until_cut = None if cut else self._bytes_until_cut - len(passed)
            if not link.dead:
                await _write(link.client, passed)
            if cut:
                link.cut()
        await self._hang_up(link)

    async def _hang_up(self, link: "_Link") -> None:
        # Whoever hangs up in a black hole is not heard doing so.
        if link.dead or self._fault is Fault.BLACK_HOLE:
            await _forever()
        link.cut()

    async def _suffered(self, link: "_Link") -> None:
        if self._fault is Fault.SLOW:
            await asyncio.sleep(self.latency_s)
        if self._fault is Fault.BLACK_HOLE:
            link.dead = True


class _Link:
    """One client's connection and the one to the server behind it."""

    def __init__(self, client: asyncio.StreamWriter, *, dead: bool) -> None:
        self.client = client
        self.dead = dead
        self.upstream: asyncio.StreamWriter | None = None
        self.task: asyncio.Future[None] | None = None
        self.was_cut = False
        self.ended = asyncio.Event()

    def cut(self) -> None:
        self.was_cut = True
        if self.task is not None:
            self.task.cancel()


async def _forever() -> None:
    await asyncio.get_running_loop().create_future()


async def _read(reader: asyncio.StreamReader) -> bytes:
    with contextlib.suppress(ConnectionError):
        return await reader.read(_CHUNK_BYTES)
    return b""


async def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        writer.write(data)
        await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST rather than FIN, as a killed process with unread data does."""
    connection = writer.get_extra_info("socket")
    if connection is not None and connection.family in {socket.AF_INET, socket.AF_INET6} and connection.fileno() >= 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
    writer.transport.abort()
