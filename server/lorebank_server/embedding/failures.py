"""How this package reports failure: one error, two reasons, never a text, a key or a vector."""

from typing import Final

from lorebank_server.domain.errors import EmbedderUnavailableError
from lorebank_server.ports.embedder import OUTAGE

MISCONFIGURED: Final = "EMBEDDER_MISCONFIGURED"


def unavailable(message: str, **metadata: str) -> EmbedderUnavailableError:
    """Build the error for a model that does not answer now and may answer later.

    Args:
        message: One or two sentences for the caller.
        metadata: Small facts, such as ``cause="ConnectError"``.

    Returns:
        The error, to be raised by the caller.
    """
    return EmbedderUnavailableError(message, reason=OUTAGE, metadata=metadata)


def misconfigured(message: str, **metadata: str) -> EmbedderUnavailableError:
    """Build the error for a model that will not answer until its settings change.

    Args:
        message: One or two sentences for the operator, saying which setting is at fault.
        metadata: Small facts, such as ``status="401"``.

    Returns:
        The error, to be raised by the caller.
    """
    return EmbedderUnavailableError(message, reason=MISCONFIGURED, metadata=metadata)
