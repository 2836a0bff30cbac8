"""From a spec to the store that it describes."""

from lorebank_server.ports.vector_store import VectorStore
from lorebank_server.vectors.spec import QdrantSpec


def open_store(spec: QdrantSpec) -> VectorStore:
    """Open a store on the Qdrant server that a spec names; nothing is sent before the first call.

    Raises:
        VectorIndexUnavailableError: The address, the key or the file of certificates cannot be used.
    """
    # The client takes half a second to load, which only those shall wait for who use it.
    from lorebank_server.vectors.qdrant import QdrantStore  # noqa: PLC0415

    return QdrantStore.connect(spec)
