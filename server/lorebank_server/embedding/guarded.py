"""An embedder behind a circuit breaker, so that an endpoint that is away costs its callers no time."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lorebank_server.circuit_breaker import CircuitBreaker, CircuitOpenError
from lorebank_server.domain.errors import EmbedderUnavailableError
from lorebank_server.embedding.failures import unavailable
from lorebank_server.ports.embedder import OUTAGE, Embedder, Vector


class GuardedEmbedder:
    """Asks the embedder it owns, unless that did not answer lately.

    An endpoint that refuses a text has answered: whoever stores what it cannot take closes it to nobody else.

    Attributes:
        breaker: Queries and documents count together, since one endpoint answers both.
    """

    def __init__(self, embedder: Embedder, breaker: CircuitBreaker | None = None) -> None:
        self.breaker = breaker or CircuitBreaker("embedder", is_failure=is_outage)
        self._embedder = embedder

    @property
    def model(self) -> str:
        """Identity of the wrapped model."""
        return self._embedder.model

    @property
    def dimensions(self) -> int:
        """Length of every vector."""
        return self._embedder.dimensions

    async def embed_query(self, text: str) -> Vector:
        """Embed one query.

        Raises:
            EmbedderUnavailableError: The embedder failed, or is left alone for now.
        """
        with self._attempt():
            return await self._embedder.embed_query(text)

    async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        """Embed texts in the order given; none for none.

        Raises:
            EmbedderUnavailableError: The embedder failed, or is left alone for now.
        """
        if not texts:
            return []
        with self._attempt():
            return await self._embedder.embed_documents(texts)

    async def aclose(self) -> None:
        """Close the wrapped embedder."""
        await self._embedder.aclose()

    @contextmanager
    def _attempt(self) -> Iterator[None]:
        try:
            with self.breaker.attempt():
                yield
        except CircuitOpenError:
            raise unavailable(
                "The embedding endpoint did not answer lately and is asked again in a few seconds.", cause="CircuitOpen"
            ) from None


def is_outage(error: Exception) -> bool:
    """Whether an embedder's exception means that nobody would get an answer now."""
    return isinstance(error, EmbedderUnavailableError) and error.reason == OUTAGE
