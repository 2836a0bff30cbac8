"""Which embedding models a server has: wired here for ``serving``."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import structlog

from lorebank_server.config import Settings
from lorebank_server.embedding import EmbeddingSpec, create_embedder, defer_packaged
from lorebank_server.operations.embedders import Embedders
from lorebank_server.ports.embedder import Embedder
from lorebank_server.postgres.embedding_models import adopt_models

_log = structlog.get_logger(__name__)


def embedding_spec(settings: Settings) -> EmbeddingSpec:
    """The embedder that the settings ask for."""
    return EmbeddingSpec(
        model_dir=settings.embedding_model_dir,
        url=settings.embedding_url,
        api_key=settings.embedding_api_key.get_secret_value() if settings.embedding_api_key else None,
        model=settings.embedding_model,
        dimensions=settings.embedding_dimensions,
        threads=settings.embedding_threads,
        query_cache_size=settings.query_cache_size,
        timeout_s=settings.embedding_timeout_s,
    )


def next_embedding_spec(settings: Settings) -> EmbeddingSpec | None:
    """The embedder that the settings ask for beside it; None when they do not."""
    if settings.next_embedding_model_dir is None and settings.next_embedding_url is None:
        return None
    return EmbeddingSpec(
        model_dir=settings.next_embedding_model_dir,
        url=settings.next_embedding_url,
        api_key=settings.next_embedding_api_key.get_secret_value() if settings.next_embedding_api_key else None,
        model=settings.next_embedding_model,
        dimensions=settings.next_embedding_dimensions,
        threads=settings.embedding_threads,
        query_cache_size=settings.query_cache_size,
        timeout_s=settings.embedding_timeout_s,
    )


@asynccontextmanager
async def embedding_backend(
    settings: Settings, dsn: str, *, embedder: Embedder | None = None, next_embedder: Embedder | None = None
) -> AsyncIterator[Embedders]:
    """The models of a server: the primary one, the next one if there is one, and the packaged one, loaded when needed.

    Args:
        settings: Describe the models.
        dsn: Connects as the owner of the schema, where the models have their numbers.
        embedder: Takes the place of the primary one, and stays the caller's to close.
        next_embedder: The same for the next one.

    Raises:
        EmbedderUnavailableError: A model cannot be loaded, or its endpoint does not answer.
        EmbeddingModelMismatchError: A space has vectors of none of these models.
    """
    async with AsyncExitStack() as stack:
        first = embedding_spec(settings)
        if embedder is None:
            embedder = await create_embedder(first)
            stack.push_async_callback(embedder.aclose)
        models = [embedder]
        second = next_embedding_spec(settings)
        if next_embedder is None and second is not None:
            next_embedder = await create_embedder(second)
            stack.push_async_callback(next_embedder.aclose)
        if next_embedder is not None:
            models.append(next_embedder)
        packaged = defer_packaged(first)
        if packaged.model not in {model.model for model in models}:
            stack.push_async_callback(packaged.aclose)
            models.append(packaged)
        numbers = await adopt_models(dsn, models)
        # Of two that are the same, the first.
        by_generation = dict(reversed(list(zip(numbers, models, strict=True))))
        embedders = Embedders(by_generation, primary=numbers[0])
        _log.info("embedding_models", first=embedders.labels[0], others=embedders.labels[1:])
        yield embedders
