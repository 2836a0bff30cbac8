"""From the outcome of an integrity check to its message."""

from lorebank.v1 import maintenance_pb2
from lorebank_server.operations.integrity import Integrity


def from_integrity(found: Integrity, *, server_version: str) -> maintenance_pb2.CheckIntegrityResponse:
    """The message of an outcome, with the version of the server that has it."""
    message = maintenance_pb2.CheckIntegrityResponse(
        memories=found.memories,
        vectors=found.vectors,
        missing=found.missing,
        orphaned=found.orphaned,
        outdated=found.outdated,
        repaired=found.repaired,
        unembedded=found.unembedded,
        index=found.index,
        pending=found.pending,
        server_version=server_version,
        schema=found.schema,
        postgres_version=found.postgres_version,
    )
    message.index_lag.FromTimedelta(found.index_lag)
    return message
