"""The server's own package, which a client may do without."""

from importlib import import_module
from types import ModuleType

from lorebank.cli.failures import UsageError


def server_module(name: str) -> ModuleType:
    """A module that needs what only the extra "server" installs.

    Raises:
        UsageError: Something of it is not installed; the message says how to get it.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing.startswith("lorebank."):
            raise
        raise UsageError(
            f"This command needs the server, of which {missing} is not installed: pip install 'lorebank[server]'"
        ) from error
