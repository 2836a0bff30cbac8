"""What the operations work with, wired once."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from lorebank_server.domain.packs import Vocabulary
from lorebank_server.ports.administration import Administration
from lorebank_server.ports.embedder import Embedder
from lorebank_server.ports.storage import Storage
from lorebank_server.ports.usage import UsageRecorder
from lorebank_server.ports.vector_index import VectorIndex


def utc_now() -> datetime:
    """The system clock, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Services:
    """The ports and rules that operations share.

    Attributes:
        clock: The current time, always in UTC; tests give their own.
        new_uid: Draws UUIDv7 values in increasing order.
    """

    storage: Storage
    administration: Administration
    embedder: Embedder
    vectors: VectorIndex
    vocabulary: Vocabulary
    usage: UsageRecorder
    new_uid: Callable[[], UUID]
    clock: Callable[[], datetime] = utc_now
