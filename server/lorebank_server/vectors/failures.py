"""How this package reports failure: one error, three reasons, never a payload, a key or a vector."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import grpc
from qdrant_client.common.client_exceptions import ResourceExhaustedResponse

from lorebank_server.domain.errors import VectorIndexUnavailableError

UNAVAILABLE: Final = "VECTOR_INDEX_UNAVAILABLE"
NOT_PREPARED: Final = "VECTOR_INDEX_NOT_PREPARED"
MISCONFIGURED: Final = "VECTOR_INDEX_MISCONFIGURED"

_CREDENTIALS: Final = frozenset({grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED})
_REFUSALS: Final = frozenset(
    {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE, grpc.StatusCode.UNIMPLEMENTED}
)


def unavailable(message: str, **metadata: str) -> VectorIndexUnavailableError:
    """Build the error for a store that may answer later."""
    return VectorIndexUnavailableError(message, reason=UNAVAILABLE, metadata=metadata)


def not_prepared() -> VectorIndexUnavailableError:
    """Build the error for a generation that the store has no place for."""
    return VectorIndexUnavailableError(
        "Qdrant does not have the collection; it has to be prepared and filled.", reason=NOT_PREPARED
    )


def misconfigured(message: str, **metadata: str) -> VectorIndexUnavailableError:
    """Build the error for a store that will not answer until somebody changes its settings or Lorebank's."""
    return VectorIndexUnavailableError(message, reason=MISCONFIGURED, metadata=metadata)


@asynccontextmanager
async def translated(timeout_s: float) -> AsyncIterator[None]:
    """Give the block ``timeout_s`` seconds, and raise the domain's error in place of the client's.

    What Qdrant says in words is left out, and the chain is cut, because it may quote what it was sent.

    Raises:
        VectorIndexUnavailableError: The block failed or took too long.
    """
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError:
        raise unavailable("Qdrant did not answer in time; retry.", cause="Timeout") from None
    except grpc.aio.AioRpcError as error:
        raise _from_status(error.code()) from None
    except ResourceExhaustedResponse:
        raise _from_status(grpc.StatusCode.RESOURCE_EXHAUSTED) from None
    except grpc.aio.BaseError as error:
        raise unavailable("The connection to Qdrant was lost; retry.", cause=type(error).__name__) from None
    except ValueError as error:
        # How the client itself refuses: a vector or an answer that it cannot convert, and all that its local mode
        # refuses in a server's place.
        if str(error).startswith("Collection ") and str(error).endswith(" not found"):
            raise not_prepared() from None
        raise _from_status(grpc.StatusCode.INVALID_ARGUMENT) from None


def _from_status(code: grpc.StatusCode) -> VectorIndexUnavailableError:
    if code in _CREDENTIALS:
        return misconfigured("Qdrant refused the credentials; check LOREBANK_QDRANT_API_KEY.", status=code.name)
    if code is grpc.StatusCode.NOT_FOUND:
        return not_prepared()
    if code in _REFUSALS:
        return misconfigured(
            "Qdrant refused the request; check that it is version 1.15 or later, that LOREBANK_QDRANT_URL names its "
            "gRPC port, and that nothing but Lorebank made or changed its collections.",
            status=code.name,
        )
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return unavailable("Qdrant did not answer in time; retry.", cause="Timeout")
    return unavailable("Qdrant cannot be reached or is overloaded; retry.", status=code.name)
