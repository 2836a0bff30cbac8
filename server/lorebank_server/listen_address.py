"""An address that several processes serve together: taken before they start, and kept from other servers."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from lorebank_server.config import ConfigurationError, split_listen


@contextmanager
def reserved(listen: str) -> Iterator[str]:
    """Hold an address on which only this user's processes that ask to share it (``SO_REUSEPORT``) may listen.

    Nothing listens on it because of this; the kernel spreads connections over those who do.

    Args:
        listen: host:port as in ``LOREBANK_LISTEN``; port 0 takes any that is free.

    Yields:
        The same with the port that was taken.

    Raises:
        ConfigurationError: Somebody listens there or has it reserved, or the address is not this machine's.
    """
    host, port = split_listen(listen)
    with ExitStack() as held:
        try:
            for family, address in _addresses(host):
                taken = held.enter_context(_taken(family, (address[0], port, *address[2:])))
                port = taken.getsockname()[1]
        except OSError as error:
            raise ConfigurationError(
                f"Cannot listen on {listen}: another program has that port, or the address is not this machine's. "
                "Stop the other one, or set LOREBANK_LISTEN."
            ) from error
        yield f"{listen.rpartition(':')[0]}:{port}"


def _addresses(host: str) -> list[tuple[int, tuple[Any, ...]]]:
    """What a name stands for on this machine: a name such as localhost may stand for a protocol that it lacks.

    Raises:
        OSError: Nothing.
    """
    found = {(family, address) for family, *_, address in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)}
    usable: list[tuple[int, tuple[Any, ...]]] = [each for each in sorted(found) if _is_ours(*each)]
    if not usable:
        raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    return usable


def _is_ours(family: int, address: tuple[Any, ...]) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address[0], 0, *address[2:]))
    except OSError:
        return False
    return True


def _taken(family: int, address: tuple[Any, ...]) -> socket.socket:
    """A socket that is bound to an address and shares it.

    Raises:
        OSError: Somebody has the address already, or it is not this machine's.
    """
    # Whoever shares an address gets it even if others do: only one who does not finds out about them. Connections of
    # the past that still linger do not count.
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        address = (address[0], probe.getsockname()[1], *address[2:])
    try:
        return _bound(family, address, over_lingering=False)
    except OSError:
        return _bound(family, address, over_lingering=True)


def _bound(family: int, address: tuple[Any, ...], *, over_lingering: bool) -> socket.socket:
    """A shared socket; one that is bound over lingering connections does not show to the probes of others."""
    taken = socket.socket(family, socket.SOCK_STREAM)
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, over_lingering)
        taken.bind(address)
    except OSError:
        taken.close()
        raise
    return taken
