"""The space: a tenant, and the policies its memories live under."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Space:
    """A tenant and its policies, as far as they are in force.

    Attributes:
        number: The space's number inside Postgres.
        half_life_days: None when memories do not decay unless their category says so.
        language: Name of a Postgres text search configuration.
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

    @property
    def etag(self) -> str:
        """Changes with every update of the space."""
        return f"{self.number}-{self.revision}"
