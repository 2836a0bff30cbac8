"""The space: a tenant, and the policies its memories live under."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SpaceEmbedding:
    """What the vectors of a space come from.

    Attributes:
        model: Identity of the model.
        dimensions: Length of a vector.
        generation: Counts the rebuilds of the space's vectors, from 1.
    """

    model: str
    dimensions: int
    generation: int


@dataclass(frozen=True, slots=True)
class Space:
    """A tenant and its policies, as far as they are in force.

    Attributes:
        number: The space's number inside Postgres.
        half_life_days: None when memories do not decay unless their category says so.
        language: Name of a Postgres text search configuration.
        embedding_model: Number of the generation of vectors that the space is searched by; 0 for the server's own.
        embedding: What that generation is; None where only the number was read.
    """

    number: int
    id: str
    display_name: str
    revision: int
    half_life_days: float | None
    default_confidence: float
    stale_threshold: float
    quality_policy: str
    language: str
    embedding_model: int = 0
    embedding: SpaceEmbedding | None = None

    @property
    def etag(self) -> str:
        """Changes with every update of the space."""
        return f"{self.number}-{self.revision}"
