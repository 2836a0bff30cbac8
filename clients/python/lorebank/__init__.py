"""Client of Lorebank, the shared memory of AI agents.

``AsyncClient`` makes the calls, ``lorebank.errors`` shows the tree of what they raise, and the messages that they
answer are those of the contract, ``lorebank.v1``.
"""

from lorebank._pager import AsyncPager
from lorebank._status import from_failure as error_of
from lorebank._version import __version__
from lorebank._writes import Ballot
from lorebank.client import AsyncClient
from lorebank.errors import (
    Aborted,
    AlreadyExists,
    DeadlineExceeded,
    FailedPrecondition,
    FieldViolation,
    Internal,
    InvalidArgument,
    LorebankError,
    NotFound,
    PermissionDenied,
    PreconditionViolation,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)
from lorebank.v1.card_pb2 import Card
from lorebank.v1.key_pb2 import Key
from lorebank.v1.memory_pb2 import Memory
from lorebank.v1.provenance_pb2 import Applicability, Provenance
from lorebank.v1.selector_pb2 import Selector
from lorebank.v1.space_pb2 import Space
from lorebank.v1.store_pb2 import StoreRequest

__all__ = [
    "Aborted",
    "AlreadyExists",
    "Applicability",
    "AsyncClient",
    "AsyncPager",
    "Ballot",
    "Card",
    "DeadlineExceeded",
    "FailedPrecondition",
    "FieldViolation",
    "Internal",
    "InvalidArgument",
    "Key",
    "LorebankError",
    "Memory",
    "NotFound",
    "PermissionDenied",
    "PreconditionViolation",
    "Provenance",
    "ResourceExhausted",
    "Selector",
    "Space",
    "StoreRequest",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "__version__",
    "error_of",
]
