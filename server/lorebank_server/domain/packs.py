"""Vocabularies: what a category means, and what it changes."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from lorebank_server.domain.errors import InvalidArgumentError
from lorebank_server.domain.memory import Kind


@dataclass(frozen=True, slots=True)
class Category:
    """What a memory states, as one pack defines it.

    Attributes:
        slug: Full slug, ``pack/slug``.
        decays: False when memories of this category never fade.
        half_life_days: None when the space's own half-life holds.
    """

    slug: str
    description: str
    kind: Kind
    decays: bool = True
    half_life_days: float | None = None


@dataclass(frozen=True, slots=True)
class Pack:
    """A named, versioned vocabulary."""

    name: str
    version: str
    description: str
    categories: tuple[Category, ...]


class Vocabulary:
    """The packs this server ships, in the order in which bare slugs are looked up."""

    def __init__(self, packs: Sequence[Pack]) -> None:
        self.packs = tuple(packs)
        self._full = {category.slug: category for pack in self.packs for category in pack.categories}
        self._bare: dict[str, Category] = {}
        for slug, category in self._full.items():
            self._bare.setdefault(slug.partition("/")[2], category)

    def category(self, slug: str, *, field: str) -> Category:
        """The category called ``slug``, full (``pack/slug``) or bare (the first pack that has it).

        Raises:
            InvalidArgumentError: No pack has it; the message names the nearest known ones.
        """
        found = self._full.get(slug) or self._bare.get(slug)
        if found is not None:
            return found
        known = [*self._full, *self._bare]
        nearest = difflib.get_close_matches(slug, known, n=3, cutoff=0.5) or sorted(self._full)[:5]
        raise InvalidArgumentError(
            f"There is no category {slug!r} in the installed packs. Nearest known: {', '.join(nearest)}. "
            "Use one of these, or leave the category out.",
            field=field,
            reason="UNKNOWN_CATEGORY",
            metadata={"nearest": ",".join(nearest)},
        )
