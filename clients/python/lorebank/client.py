"""The client: one typed method for each call, with deadlines, safe retries and pagers."""

import os
from types import TracebackType
from typing import Final, Self

from lorebank._reads import MemoryReads
from lorebank._transport import Transport
from lorebank._writes import MemoryWrites
from lorebank.keys import Keys
from lorebank.spaces import Spaces

DEFAULT_SERVER: Final = "127.0.0.1:50051"
DEFAULT_TIMEOUT_S: Final = 10.0


class AsyncClient(MemoryReads, MemoryWrites):
    """Talks to one Lorebank server. Use it as an async context manager, or close it.

    Every call has a deadline. Those that the server or its storage cannot take for now (UNAVAILABLE) are tried up to
    five times within it; calls that write carry a ``request_id``, which the client draws unless the caller gives one,
    so that a retry never writes twice. A call that fails raises a subclass of ``LorebankError``.

    Example::

        async with AsyncClient() as client:
            await client.store("The staging database is wiped every Monday.", tags=["staging"])
            answer = await client.find("when is staging reset?")
            for hit in answer.hits:
                print(hit.score, hit.memory.content)

    Attributes:
        spaces: Calls that govern spaces.
        keys: Calls that govern the keys of a space.
    """

    def __init__(
        self,
        server: str = DEFAULT_SERVER,
        *,
        api_key: str | None = None,
        space: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        tls: bool = False,
        root_certificates: bytes | None = None,
    ) -> None:
        """Prepare a client; the first call connects.

        Args:
            server: Address as ``host:port``.
            api_key: Key to act with; blanks around it do not count. It is sent with every call, in the clear unless
                ``tls`` is on.
            space: Space to work in. Default: that of the key.
            timeout_s: Seconds that a call may take, its retries included.
            tls: Whether to encrypt.
            root_certificates: PEM of the authorities to trust instead of the usual ones; switches ``tls`` on.

        Raises:
            ValueError: The key has characters that cannot be sent.
        """
        self._space = space or ""
        self._transport = Transport(
            server,
            api_key=(api_key or "").strip(),
            timeout_s=timeout_s,
            tls=tls,
            root_certificates=root_certificates,
        )
        self.spaces = Spaces(self._transport, space=self._space)
        self.keys = Keys(self._transport, space=self._space)

    @classmethod
    def from_environment(
        cls,
        *,
        server: str | None = None,
        api_key: str | None = None,
        space: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        tls: bool = False,
        root_certificates: bytes | None = None,
    ) -> Self:
        """A client that takes what is not given from LOREBANK_SERVER, LOREBANK_API_KEY and LOREBANK_SPACE."""
        return cls(
            server or os.environ.get("LOREBANK_SERVER") or DEFAULT_SERVER,
            api_key=api_key or os.environ.get("LOREBANK_API_KEY"),
            space=space or os.environ.get("LOREBANK_SPACE"),
            timeout_s=timeout_s,
            tls=tls,
            root_certificates=root_certificates,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection; calls under way are cancelled. Closing again does nothing."""
        await self._transport.close()
