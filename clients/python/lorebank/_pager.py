"""Lists that come in pages."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Generic, Protocol, TypeVar


class Page(Protocol):
    """What every page of a list has."""

    @property
    def next_page_token(self) -> str:
        """Token of the next page; empty on the last one."""


_Item = TypeVar("_Item")
_Page = TypeVar("_Page", bound=Page)


class AsyncPager(Generic[_Item, _Page]):
    """Iterates over all items of a list, asking for the next page when it needs one.

    Every iteration begins with the first page.
    """

    def __init__(self, fetch: Callable[[str], Awaitable[_Page]], items: Callable[[_Page], Iterable[_Item]]) -> None:
        self._fetch = fetch
        self._items = items

    async def __aiter__(self) -> AsyncIterator[_Item]:
        async for page in self.pages():
            for item in self._items(page):
                yield item

    async def pages(self) -> AsyncIterator[_Page]:
        """Iterate over the answers themselves, of which there is at least one.

        Raises:
            LorebankError: A page could not be read.
        """
        page = await self._fetch("")
        yield page
        while page.next_page_token:
            page = await self._fetch(page.next_page_token)
            yield page
