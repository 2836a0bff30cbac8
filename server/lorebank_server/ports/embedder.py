"""The port through which operations turn text into vectors."""

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
"""``float32[dimensions]``, scaled to unit length."""


OUTAGE: Final = "EMBEDDER_UNAVAILABLE"
"""Reason of an error that any text would have met. With any other reason the model answered, and refused."""


class Embedder(Protocol):
    """Turns texts into unit vectors of one model.

    Implementations are safe to share between tasks of one event loop and keep CPU work off that loop.
    Every call raises ``EmbedderUnavailableError`` when the model cannot answer, with the reason ``OUTAGE`` when that
    is not due to what it was asked.
    """

    @property
    def model(self) -> str:
        """Identity of the model, recorded with every vector it made."""
        ...

    @property
    def dimensions(self) -> int:
        """Length of every vector."""
        ...

    async def embed_query(self, text: str) -> Vector:
        """Embed one search query; answers may come from a cache keyed by the text."""
        ...

    async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        """Embed texts to be stored, in the order given; an empty sequence gives an empty list."""
        ...

    async def aclose(self) -> None:
        """Release threads and connections; calls made afterwards fail."""
        ...
