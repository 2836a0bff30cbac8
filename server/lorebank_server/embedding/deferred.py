"""An embedder whose model is loaded when it is first needed."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from lorebank_server.embedding.failures import unavailable
from lorebank_server.ports.embedder import Embedder, Vector


class DeferredEmbedder:
    """Stands for a model that is known and may never be needed; owns it once it is loaded."""

    def __init__(self, load: Callable[[], Awaitable[Embedder]], *, model: str, dimensions: int) -> None:
        """Know the model by its identity and dimensions, which are those of what ``load`` gives."""
        self._load = load
        self._model = model
        self._dimensions = dimensions
        self._loading = asyncio.Lock()
        self._embedder: Embedder | None = None
        self._closed = False

    @property
    def model(self) -> str:
        """Identity of the model."""
        return self._model

    @property
    def dimensions(self) -> int:
        """Length of every vector."""
        return self._dimensions

    async def embed_query(self, text: str) -> Vector:
        """Embed one query, after loading the model if nobody did so before.

        Raises:
            EmbedderUnavailableError: The model cannot be loaded, or failed.
        """
        return await (await self._loaded()).embed_query(text)

    async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        """Embed texts in the order given, after loading the model if nobody did so before; none for none.

        Raises:
            EmbedderUnavailableError: The model cannot be loaded, or failed.
        """
        return await (await self._loaded()).embed_documents(texts) if texts else []

    async def aclose(self) -> None:
        """Close the model, if it was loaded."""
        self._closed = True
        async with self._loading:
            if self._embedder is not None:
                await self._embedder.aclose()

    async def _loaded(self) -> Embedder:
        async with self._loading:
            if self._closed:
                raise unavailable("The embedder is closed.")
            if self._embedder is None:
                self._embedder = await self._load()
            return self._embedder
