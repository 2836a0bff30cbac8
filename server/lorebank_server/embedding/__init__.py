"""Embedders: a model in this process, an OpenAI-compatible endpoint, and a cache around either."""

from lorebank_server.embedding.cache import CachedEmbedder
from lorebank_server.embedding.factory import EmbeddingSpec, create_embedder, defer_packaged

__all__ = ["CachedEmbedder", "EmbeddingSpec", "create_embedder", "defer_packaged"]
