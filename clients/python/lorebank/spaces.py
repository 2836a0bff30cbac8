"""Calls that govern spaces."""

from collections.abc import Iterable

from google.protobuf.field_mask_pb2 import FieldMask

from lorebank._pager import AsyncPager
from lorebank._transport import Transport
from lorebank.v1 import space_pb2
from lorebank.v1.space_pb2 import Space


class Spaces:
    """Creates, reads, changes and deletes spaces; most of it needs the admin role."""

    def __init__(self, transport: Transport, *, space: str) -> None:
        self._transport = transport
        self._space = space

    async def create(self, space: str | Space) -> Space:
        """Create a space from its id, or from a message with settings; it is not retried.

        Raises:
            AlreadyExists: The id is taken.
        """
        message = Space(id=space) if isinstance(space, str) else space
        request = space_pb2.CreateSpaceRequest(space=message)
        answer = await self._transport.call(self._transport.spaces.CreateSpace, request)
        return answer.space

    async def get(self, space: str = "") -> Space:
        """Read a space with its settings. Default: the client's, else that of the key."""
        request = space_pb2.GetSpaceRequest(space=space or self._space)
        answer = await self._transport.call(self._transport.spaces.GetSpace, request)
        return answer.space

    def list(self, *, page_size: int = 0) -> AsyncPager[Space, space_pb2.ListSpacesResponse]:
        """List the spaces that the key reaches, in order of id."""
        request = space_pb2.ListSpacesRequest(page_size=page_size)

        async def fetch(page_token: str) -> space_pb2.ListSpacesResponse:
            request.page_token = page_token
            return await self._transport.call(self._transport.spaces.ListSpaces, request)

        return AsyncPager(fetch, lambda page: page.spaces)

    async def update(self, space: Space, *, mask: Iterable[str]) -> Space:
        """Change the settings that ``mask`` names; one that is named and empty goes back to its default.

        Raises:
            Aborted: The settings have changed since the message's etag.
        """
        request = space_pb2.UpdateSpaceRequest(space=space, update_mask=FieldMask(paths=mask))
        answer = await self._transport.call(self._transport.spaces.UpdateSpace, request)
        return answer.space

    async def delete(self, space: str, *, confirm: str = "") -> space_pb2.DeleteSpaceResponse:
        """Delete a space with all that it holds, beyond recovery, in two steps; it is not retried.

        Args:
            space: Its id.
            confirm: The digest that the first step answered. Empty only counts.

        Raises:
            FailedPrecondition: The space has changed since it was counted.
        """
        request = space_pb2.DeleteSpaceRequest(space=space, confirm=confirm)
        return await self._transport.call(self._transport.spaces.DeleteSpace, request)
