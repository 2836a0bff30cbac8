# ruff: noqa: N818 - the names are those of the canonical codes
"""What calls raise when the service, or the way to it, fails.

``LorebankError``: catch it to catch everything below
├── ``InvalidArgument``: the request itself is wrong; ``violations`` names the fields
├── ``Unauthenticated``: no key, or one that is wrong, expired or revoked
├── ``PermissionDenied``: the key does not allow it
├── ``NotFound``: not there, or not visible to the key
├── ``AlreadyExists``: a natural key is taken, or a request id was used for another body
├── ``Aborted``: it changed since it was read; read it again, then retry
├── ``FailedPrecondition``: its state forbids it; ``preconditions`` and ``metadata`` say why
├── ``ResourceExhausted``: a quota, rate or size is used up; ``retry_delay_s`` says when to retry
├── ``Unavailable``: the server or its storage is away, also after retries
├── ``DeadlineExceeded``: no answer in time; whether it was done is unknown
├── ``Unimplemented``: this version of the server does not serve the call
└── ``Internal``: a fault of the server, whose log has the details
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import grpc


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One field at fault.

    Attributes:
        field: Path of the field, for example ``memory.content``.
        description: What is wrong with it.
    """

    field: str
    description: str


@dataclass(frozen=True, slots=True)
class PreconditionViolation:
    """One state that forbids a call.

    Attributes:
        type: Kind of precondition, for example ``SUPERSEDED``.
        subject: What is in that state, for example the id of a memory.
        description: What to do about it.
    """

    type: str
    subject: str
    description: str


class LorebankError(Exception):
    """A call failed.

    Attributes:
        message: What is wrong and what to do next, in a sentence or two.
        code: Canonical status code.
        reason: Stable upper-case identifier, for example ``ETAG_MISMATCH``; empty when the server did not get to
            answer.
        metadata: Small facts, for example ``{"id": "a1B2c3D4"}``.
        violations: Fields at fault; empty unless the request is wrong.
        preconditions: States that forbid the call; empty unless there are any.
        retry_delay_s: Seconds to wait before another attempt; None when the server names none.
    """

    def __init__(
        self,
        message: str,
        *,
        code: grpc.StatusCode = grpc.StatusCode.UNKNOWN,
        reason: str = "",
        metadata: Mapping[str, str] | None = None,
        violations: tuple[FieldViolation, ...] = (),
        preconditions: tuple[PreconditionViolation, ...] = (),
        retry_delay_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.metadata: Mapping[str, str] = MappingProxyType(dict(metadata or {}))
        self.violations = violations
        self.preconditions = preconditions
        self.retry_delay_s = retry_delay_s


class InvalidArgument(LorebankError):
    """The request itself is wrong; the same call never succeeds."""


class Unauthenticated(LorebankError):
    """No key was given, or one that is wrong, expired or revoked."""


class PermissionDenied(LorebankError):
    """The key does not allow it."""


class NotFound(LorebankError):
    """Not there, or not visible to the key; the two look the same."""


class AlreadyExists(LorebankError):
    """A natural key is taken, or a request id was used for another body."""


class Aborted(LorebankError):
    """It changed since it was read; read it again, then retry."""


class FailedPrecondition(LorebankError):
    """The state of something forbids it, for example a memory that was superseded."""


class ResourceExhausted(LorebankError):
    """A quota, a rate or a message size is used up."""


class Unavailable(LorebankError):
    """The server or its storage is away, also after retries."""


class DeadlineExceeded(LorebankError):
    """No answer came in time. Whether the call took effect is unknown; the same ``request_id`` makes sure."""


class Unimplemented(LorebankError):
    """This version of the server does not serve the call."""


class Internal(LorebankError):
    """A fault of the server; its log has the details."""
