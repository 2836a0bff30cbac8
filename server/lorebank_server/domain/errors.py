"""The one tree of errors that operations raise.

``LorebankError``
├── ``InvalidArgumentError``: the request itself is wrong; the same call never succeeds
├── ``UnauthenticatedError``: no credential, or one that is wrong, expired or revoked
├── ``PermissionDeniedError``: known caller, not allowed, and allowed to know it
├── ``NotFoundError``: not there, or not visible to the caller; the two look the same
├── ``AlreadyExistsError``: natural key taken, or request id reused with another body
├── ``AbortedError``: stale etag or write conflict; read again, then retry
├── ``FailedPreconditionError``: the state of a resource forbids it
├── ``ResourceExhaustedError``: quota, rate or size; later
├── ``NotImplementedYetError``: a procedure of the contract that this version does not serve
├── ``StorageUnavailableError``: Postgres is away; retry
├── ``EmbedderUnavailableError``: the embedding model cannot answer; retry
└── ``VectorIndexUnavailableError``: the vector index cannot answer; retry
"""

from collections.abc import Mapping
from types import MappingProxyType


class LorebankError(Exception):
    """Base of all domain errors.

    Attributes:
        message: One or two sentences for the caller, saying what to do next; never memory text.
        reason: Stable upper-case identifier, for example ``ETAG_MISMATCH``.
        metadata: Small machine-readable facts, for example ``{"id": "a1B2c3D4"}``.
    """

    def __init__(self, message: str, *, reason: str, metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.metadata: Mapping[str, str] = MappingProxyType(dict(metadata or {}))


class InvalidArgumentError(LorebankError):
    """The request is wrong in itself.

    Attributes:
        field: Path of the field at fault, for example ``memory.content``; empty when it is no single field.
    """

    def __init__(
        self,
        message: str,
        *,
        field: str = "",
        reason: str = "INVALID_FIELD",
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, reason=reason, metadata={"field": field, **(metadata or {})} if field else metadata)
        self.field = field


class UnauthenticatedError(LorebankError):
    """The caller gave no credential, or one that does not hold."""


class PermissionDeniedError(LorebankError):
    """The caller is known and may not do this."""


class NotFoundError(LorebankError):
    """Not there, or not visible to the caller."""


class AlreadyExistsError(LorebankError):
    """A natural key is taken, or a request id was used for another body."""


class AbortedError(LorebankError):
    """The resource changed meanwhile: read it again, then retry."""


class FailedPreconditionError(LorebankError):
    """The state of a resource forbids the call.

    Attributes:
        subject: The resource whose state is at fault, for example a memory's id.
    """

    def __init__(
        self, message: str, *, reason: str, subject: str = "", metadata: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message, reason=reason, metadata=metadata)
        self.subject = subject


class ResourceExhaustedError(LorebankError):
    """A quota, a rate or a size is used up."""


class NotImplementedYetError(LorebankError):
    """A procedure of the contract that this version does not serve."""


class StorageUnavailableError(LorebankError):
    """Postgres cannot be reached, or refuses for now."""


class EmbedderUnavailableError(LorebankError):
    """The embedding model cannot answer for now."""


class VectorIndexUnavailableError(LorebankError):
    """The vector index cannot answer for now."""
