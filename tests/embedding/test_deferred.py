"""A model that is loaded when it is first needed."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

from lorebank_server.domain.errors import EmbedderUnavailableError
from lorebank_server.embedding import EmbeddingSpec, defer_packaged
from lorebank_server.embedding.deferred import DeferredEmbedder


class Loader:
    """Loads a model that counts letters, or fails."""

    def __init__(self) -> None:
        self.loaded = 0
        self.closed = 0
        self.broken = False

    async def __call__(self) -> SimpleNamespace:
        await asyncio.sleep(0)
        if self.broken:
            raise EmbedderUnavailableError("broken", reason="EMBEDDER_UNAVAILABLE")
        self.loaded += 1
        return SimpleNamespace(embed_query=self._query, embed_documents=self._documents, aclose=self._close)

    async def _query(self, text: str) -> np.ndarray:
        return np.array([len(text)], dtype=np.float32)

    async def _documents(self, texts: list[str]) -> list[np.ndarray]:
        return [await self._query(text) for text in texts]

    async def _close(self) -> None:
        self.closed += 1


@pytest.fixture
def loader() -> Loader:
    return Loader()


@pytest.fixture
def deferred(loader: Loader) -> DeferredEmbedder:
    return DeferredEmbedder(loader, model="letters", dimensions=1)


async def test_it_is_loaded_once_by_whoever_comes_first(loader: Loader, deferred: DeferredEmbedder) -> None:
    assert ("letters", 1, 0) == (deferred.model, deferred.dimensions, loader.loaded)
    assert [] == await deferred.embed_documents([])
    assert 0 == loader.loaded
    query, documents = await asyncio.gather(deferred.embed_query("four"), deferred.embed_documents(["a", "bc"]))
    assert ([4], [[1], [2]]) == (query.tolist(), [vector.tolist() for vector in documents])
    assert 1 == loader.loaded
    await deferred.aclose()
    assert 1 == loader.closed


async def test_what_could_not_be_loaded_is_tried_again(loader: Loader, deferred: DeferredEmbedder) -> None:
    loader.broken = True
    with pytest.raises(EmbedderUnavailableError):
        await deferred.embed_query("four")
    loader.broken = False
    assert [4] == (await deferred.embed_query("four")).tolist()


async def test_closed_before_it_was_needed_it_is_never_loaded(loader: Loader, deferred: DeferredEmbedder) -> None:
    await deferred.aclose()
    with pytest.raises(EmbedderUnavailableError, match="closed"):
        await deferred.embed_query("four")
    assert (0, 0) == (loader.loaded, loader.closed)


async def test_the_packaged_model_is_known_before_it_is_loaded(embedder) -> None:
    packaged = defer_packaged(EmbeddingSpec(threads=1))
    assert (embedder.model, embedder.dimensions) == (packaged.model, packaged.dimensions)
    text = "The lift is checked in spring."
    np.testing.assert_allclose(await packaged.embed_query(text), await embedder.embed_query(text), atol=1e-6)
    await packaged.aclose()
