"""Calls that govern spaces."""

from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from typing import Final

from google.protobuf.field_mask_pb2 import FieldMask

from lorebank._pager import AsyncPager
from lorebank._transport import Transport
from lorebank.v1 import maintenance_pb2, space_pb2
from lorebank.v1.space_pb2 import Space

CHECK_TIMEOUT_S: Final = 600.0


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

    async def check_integrity(
        self, space: str = "", *, repair: bool = False, timeout_s: float = CHECK_TIMEOUT_S
    ) -> maintenance_pb2.CheckIntegrityResponse:
        """Compare the rows of a space with its vectors, in both directions. Default: the client's space.

        Args:
            space: Its id.
            repair: Whether to put right what differs.
            timeout_s: Seconds that it may take; some hundred thousand memories take some ten of them.

        Raises:
            Unavailable: The vector index is away.
        """
        request = maintenance_pb2.CheckIntegrityRequest(space=space or self._space, repair=repair)
        return await self._transport.call(self._transport.spaces.CheckIntegrity, request, timeout_s=timeout_s)

    async def reindex(
        self, space: str = "", *, model: str = "", timeout_s: float | None = None
    ) -> AsyncIterator[maintenance_pb2.ReindexResponse]:
        """Build the vectors of a space again, and yield how far that is. Default: the client's space.

        It is searched and written to meanwhile as always. Phases are "embedding", "indexing", "switching" and
        "finished"; within one, ``done`` and ``total`` never fall. What is done stays done: after a failure, or after
        leaving the iteration early, another call goes on.

        Args:
            space: Its id.
            model: Name of another model that the server has, to move the space to. Default: the present one, whose
                vectors are kept.
            timeout_s: Seconds that it may take. Default: without end.

        Raises:
            InvalidArgument: The server has no such model; the message names those it has.
            Aborted: Another reindexing of the space is under way.
            Unavailable: The embedding model or the vector index is away.
        """
        request = maintenance_pb2.ReindexRequest(space=space or self._space, model=model)
        steps = self._transport.stream(self._transport.spaces.Reindex, request, timeout_s=timeout_s)
        async with aclosing(steps):
            async for step in steps:
                yield step
