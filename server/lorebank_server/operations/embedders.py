"""The embedding models that a server has, by the generation of vectors that each makes."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from lorebank_server.domain.errors import EmbedderUnavailableError
from lorebank_server.domain.space import Space
from lorebank_server.ports.embedder import Embedder


class Embedders:
    """Finds the model that makes the vectors which a space is searched by.

    Attributes:
        primary: Generation of the model that new spaces begin with.
    """

    def __init__(self, by_generation: Mapping[int, Embedder], *, primary: int) -> None:
        self.primary = primary
        self._by_generation = MappingProxyType(dict(by_generation))
        self._seen: dict[int, int] = {}

    def __iter__(self) -> Iterator[tuple[int, Embedder]]:
        """Every generation with its model, the primary one first."""
        yield self.primary, self._by_generation[self.primary]
        yield from ((number, model) for number, model in self._by_generation.items() if number != self.primary)

    def of(self, generation: int) -> Embedder:
        """The model of a generation; 0 means the primary one.

        Raises:
            EmbedderUnavailableError: This server does not have it; one of its replicas may, which moved a space there.
        """
        embedder = self._by_generation.get(generation or self.primary)
        if embedder is None:
            raise EmbedderUnavailableError(
                "This server does not have the embedding model that the space was moved to: start it anew with that "
                "model in the LOREBANK_EMBEDDING_* or LOREBANK_NEXT_EMBEDDING_* settings.",
                reason="EMBEDDING_MODEL_NOT_LOADED",
            )
        return embedder

    def named(self, model: str) -> int | None:
        """The generation of a model, by its name or as it stands in ``labels``; None when that tells none apart."""
        found = [generation for generation, embedder in self if model in {embedder.model, label(embedder)}]
        return found[0] if len(found) == 1 else None

    @property
    def labels(self) -> list[str]:
        """Names and dimensions of all models, the primary one first."""
        return [label(embedder) for _, embedder in self]

    def expected_in(self, space_id: int) -> int:
        """The generation that a space was last seen with: a guess, before its row is read."""
        return self._seen.get(space_id, self.primary)

    def met_in(self, space: Space) -> int:
        """The generation of a space whose row was read; it is expected there from now on."""
        generation = space.embedding_model or self.primary
        if generation != self.expected_in(space.number):
            self._seen[space.number] = generation
        return generation


def label(embedder: Embedder) -> str:
    """A model as people tell it from others."""
    return f"{embedder.model} ({embedder.dimensions} dimensions)"
