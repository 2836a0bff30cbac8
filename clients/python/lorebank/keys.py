"""Calls that govern the keys of a space."""

from collections.abc import Iterable
from datetime import datetime

from lorebank._enums import RoleName, enum_number
from lorebank._fields import timestamp
from lorebank._pager import AsyncPager
from lorebank._transport import Transport
from lorebank.v1 import key_pb2
from lorebank.v1.key_pb2 import Key, Role


class Keys:
    """Creates, lists and revokes keys; all of it needs the admin role."""

    def __init__(self, transport: Transport, *, space: str) -> None:
        self._transport = transport
        self._space = space

    async def create(
        self,
        owner: str,
        *,
        roles: Iterable[RoleName | int],
        project: str = "",
        display_name: str = "",
        expire_time: datetime | None = None,
    ) -> key_pb2.CreateKeyResponse:
        """Create a key; its secret is in the answer, this once. It is not retried.

        Args:
            owner: The principal that acts through it.
            roles: What it may do; "writer" includes "reader", and so on up to "admin".
            project: The only project that it may see and write. Default: every project.
            display_name: Name for people.
            expire_time: When it ceases to work. Default: never.
        """
        key = Key(
            owner=owner,
            roles=[enum_number(Role, role) for role in roles],
            project=project,
            display_name=display_name,
            expire_time=timestamp(expire_time) if expire_time else None,
        )
        request = key_pb2.CreateKeyRequest(space=self._space, key=key)
        return await self._transport.call(self._transport.spaces.CreateKey, request)

    def list(self, *, page_size: int = 0) -> AsyncPager[Key, key_pb2.ListKeysResponse]:
        """List keys without their secrets, oldest first."""
        request = key_pb2.ListKeysRequest(space=self._space, page_size=page_size)

        async def fetch(page_token: str) -> key_pb2.ListKeysResponse:
            request.page_token = page_token
            return await self._transport.call(self._transport.spaces.ListKeys, request)

        return AsyncPager(fetch, lambda page: page.keys)

    async def revoke(self, id: str) -> Key:
        """Revoke a key for good; a revoked one stays as it is."""
        request = key_pb2.RevokeKeyRequest(space=self._space, id=id)
        answer = await self._transport.call(self._transport.spaces.RevokeKey, request)
        return answer.key
