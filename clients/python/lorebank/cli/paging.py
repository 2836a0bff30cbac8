"""The beginning of a list."""

from collections.abc import AsyncIterable
from typing import TypeVar

_Item = TypeVar("_Item")


async def take(items: AsyncIterable[_Item], limit: int) -> tuple[list[_Item], bool]:
    """The first ``limit`` items, or all of them when it is 0, and whether there are more."""
    taken: list[_Item] = []
    async for item in items:
        if limit and len(taken) == limit:
            return taken, True
        taken.append(item)
    return taken, False
