"""Vector stores outside of Postgres, and the index over them."""

from lorebank_server.vectors.factory import open_store
from lorebank_server.vectors.spec import QdrantSpec

__all__ = ["QdrantSpec", "open_store"]
