"""What the operations work with, wired once."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from lorebank_server.domain.packs import Vocabulary
from lorebank_server.operations.embedders import Embedders
from lorebank_server.ports.administration import Administration
from lorebank_server.ports.inventory import Inventory
from lorebank_server.ports.reindexing import IndexRebuild, Reindexing
from lorebank_server.ports.storage import Storage
from lorebank_server.ports.usage import UsageRecorder
from lorebank_server.ports.vector_index import VectorIndex
from lorebank_server.ports.vector_store import VectorStore


def utc_now() -> datetime:
    """The system clock, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Services:
    """The ports and rules that operations share.

    Attributes:
        vector_store: Where vectors are searched outside of Postgres; None where it searches itself.
        clock: The current time, always in UTC; tests give their own.
        new_uid: Draws UUIDv7 values in increasing order.
    """

    storage: Storage
    administration: Administration
    embedders: Embedders
    vectors: VectorIndex
    vocabulary: Vocabulary
    usage: UsageRecorder
    inventory: Inventory
    reindexing: Reindexing
    index_rebuild: IndexRebuild
    new_uid: Callable[[], UUID]
    vector_store: VectorStore | None = None
    clock: Callable[[], datetime] = utc_now
