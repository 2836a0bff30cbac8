"""Memories and queries without end, recombined from the example memories of ``lorebank demo``.

They are not real data, and whoever prints figures about them says so. Words, lengths, tags, categories, scopes and
projects are those of real memories; which part of which memory stands beside which is drawn, and so are numbers.
Everything follows from the seed and the position alone: a larger corpus begins with the smaller one.
"""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from math import gcd
from typing import Final

from lorebank.demo import world
from lorebank_server.domain import limits
from lorebank_server.domain.fingerprints import indexed_text
from lorebank_server.domain.memory import Draft, Provenance
from lorebank_server.rpc.conversion.drafts import to_draft

DESCRIPTION: Final = "recombined from the example memories of `lorebank demo`, not real data"

_PARTS: Final = 3
_QUERY_WORDS: Final = 10
_FIRST_DAY: Final = datetime(2025, 1, 1, tzinfo=UTC)
_DAYS: Final = 365
_NUMBER: Final = re.compile(r"\d+")
_GOLDEN: Final = 0.6180339887498949


@dataclass(frozen=True, slots=True)
class Corpus:
    """Memories by position, each the same whenever it is asked for.

    No two say the same: the first third of one example, the middle of another and the end of a third, with other
    numbers, filed as the first of them is and true from some day of 2025.

    Attributes:
        seed: Draws what is drawn.
    """

    seed: int

    @property
    def limit(self) -> int:
        """How many different memories there are."""
        return len(examples()) ** _PARTS

    def parts(self, position: int) -> tuple[int, int, int]:
        """Numbers of the examples whose beginning, middle and end a memory is made of."""
        count = len(examples())
        place = _scattered(position, self.limit, seed=self.seed)
        return place // count**2, place // count % count, place % count

    def draft(self, position: int) -> Draft:
        """One memory, in the normal form in which it is kept; ``limit`` of them exist."""
        first, second, third = self.parts(position)
        chance = random.Random(f"{self.seed}:{position}")  # noqa: S311 - texts, no secrets
        words = [word for part, number in enumerate((first, second, third)) for word in piece(number, part)]
        origin = examples()[first]
        return replace(
            origin,
            content=_NUMBER.sub(lambda found: _digits(chance, len(found[0])), " ".join(words)),
            valid_from=_FIRST_DAY + timedelta(days=chance.randrange(_DAYS)),
        )

    def text(self, position: int) -> str:
        """What both search legs index of a memory, whenever it is stored."""
        return indexed_text(self.draft(position), _FIRST_DAY)


@cache
def examples() -> tuple[Draft, ...]:
    """The example memories in normal form, without what would make every recombination of one alike or unique."""
    drafts = [to_draft(memory) for name in world.WORLDS for memory in world.memories(name)]
    return tuple(
        limits.normalize(replace(draft, key="", card=None, pinned=False, provenance=_author(draft), valid_until=None))
        for draft in drafts
    )


def piece(number: int, part: int) -> list[str]:
    """The words of the first (0), middle (1) or last (2) third of an example."""
    words = examples()[number].content.split()
    return words[len(words) * part // _PARTS : len(words) * (part + 1) // _PARTS]


def texts(seed: int) -> Iterator[str]:
    """Endless texts as long as the example memories; the first 100,000 and more are all different."""
    contents = [draft.content for draft in examples()]
    return _recombined(contents, contents, seed=seed)


def queries(seed: int) -> Iterator[str]:
    """Endless queries as long as the example questions; the first 100,000 and more are all different."""
    asked = [question.query for question in world.questions()]
    stored = [" ".join(draft.content.split()[:_QUERY_WORDS]) for draft in examples()]
    return _recombined([*asked, *stored], stored, seed=seed)


def _recombined(firsts: Sequence[str], seconds: Sequence[str], *, seed: int) -> Iterator[str]:
    """The first half of one with the second half of another, every pair once before any comes again."""
    total = len(firsts) * len(seconds)
    position = 0
    while True:
        first, second = divmod(_scattered(position % total, total, seed=seed), len(seconds))
        opening, ending = firsts[first].split(), seconds[second].split()
        yield " ".join([*opening[: len(opening) // 2], *ending[len(ending) // 2 :]])
        position += 1


def _scattered(position: int, total: int, *, seed: int) -> int:
    """A permutation of ``range(total)`` in which neighbours lie far apart."""
    step, offset = _stride(total, seed)
    return (position * step + offset) % total


@cache
def _stride(total: int, seed: int) -> tuple[int, int]:
    step = int(total * _GOLDEN) | 1
    while gcd(step, total) != 1:
        step += 2
    return step, random.Random(seed).randrange(total)  # noqa: S311


def _digits(chance: random.Random, count: int) -> str:
    return str(chance.randrange(1, 10)) + "".join(str(chance.randrange(10)) for _ in range(count - 1))


def _author(draft: Draft) -> Provenance:
    return Provenance(origin=draft.provenance.origin, author=draft.provenance.author, agent=draft.provenance.agent)
