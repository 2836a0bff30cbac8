"""From settings to the embedder that they describe."""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from lorebank_server.embedding.cache import DEFAULT_CACHE_SIZE, CachedEmbedder
from lorebank_server.embedding.deferred import DeferredEmbedder
from lorebank_server.embedding.guarded import GuardedEmbedder
from lorebank_server.embedding.http import OpenAICompatibleEmbedder
from lorebank_server.embedding.local import OnnxEmbedder
from lorebank_server.embedding.model_files import (
    PACKAGED_DIMENSIONS,
    PACKAGED_IDENTITY,
    packaged_model,
    read_model_folder,
)
from lorebank_server.ports.embedder import Embedder


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingSpec:
    """Which model makes the vectors, and how.

    Attributes:
        model_dir: Folder of a sentence-transformers ONNX model to run instead of the packaged one.
        url: Address of an OpenAI-compatible endpoint, without ``/embeddings``; excludes ``model_dir``.
        api_key: The endpoint's bearer token; not part of this object's repr.
        model: The endpoint's name for the model; required with ``url``, unused without.
        dimensions: Length to ask the endpoint for; None asks it once at start. Unused without ``url``.
        threads: Texts that a local model embeds at the same time. From 2 on, one is kept for queries.
        query_cache_size: Query vectors kept.
        timeout_s: Deadline in seconds of one request to the endpoint, its retry included.

    Raises:
        ValueError: Settings exclude each other, are missing or are out of range.
    """

    model_dir: Path | None = None
    url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    model: str | None = None
    dimensions: int | None = None
    threads: int = 2
    query_cache_size: int = DEFAULT_CACHE_SIZE
    timeout_s: float = 10.0

    def __post_init__(self) -> None:
        if self.url and self.model_dir:
            raise ValueError("give the embedder a url or a model_dir, not both")
        if self.url and not self.model:
            raise ValueError("an embedder with a url needs the name of its model")
        if self.threads < 1 or self.query_cache_size < 0 or self.timeout_s <= 0:
            raise ValueError("threads and timeout_s must be positive, query_cache_size must not be negative")
        if self.dimensions is not None and self.dimensions < 1:
            raise ValueError("dimensions must be positive")

    @property
    def provider(self) -> Literal["local", "folder", "http"]:
        """Which kind of embedder the settings ask for."""
        if self.url:
            return "http"
        return "folder" if self.model_dir else "local"


async def create_embedder(spec: EmbeddingSpec) -> CachedEmbedder:
    """Load or reach the model that a spec describes, behind a cache.

    An endpoint is behind a circuit breaker too, below the cache, which answers even while the circuit is open. A model
    in this process has none: it may be busy, but it does not go away, and to refuse work would not make it quicker.

    Nothing is downloaded. The caller closes the embedder, which closes everything below it.

    Raises:
        EmbedderUnavailableError: The model cannot be loaded, or the endpoint did not answer; the reason tells
            ``EMBEDDER_MISCONFIGURED`` from ``EMBEDDER_UNAVAILABLE``.
    """
    return CachedEmbedder(await _create_uncached(spec), query_cache_size=spec.query_cache_size)


def defer_packaged(spec: EmbeddingSpec) -> DeferredEmbedder:
    """The packaged model, to be loaded when it is first needed, with the threads and the cache of a spec."""
    packaged = EmbeddingSpec(threads=spec.threads, query_cache_size=spec.query_cache_size)
    return DeferredEmbedder(partial(create_embedder, packaged), model=PACKAGED_IDENTITY, dimensions=PACKAGED_DIMENSIONS)


async def _create_uncached(spec: EmbeddingSpec) -> Embedder:
    if spec.url and spec.model:
        endpoint = await OpenAICompatibleEmbedder.create(
            url=spec.url,
            model=spec.model,
            api_key=spec.api_key,
            dimensions=spec.dimensions,
            timeout_s=spec.timeout_s,
        )
        return GuardedEmbedder(endpoint)
    read_files = partial(read_model_folder, spec.model_dir) if spec.model_dir else packaged_model
    return await OnnxEmbedder.create(read_files, threads=spec.threads)
