"""The port to spaces and credentials. Every call may raise ``StorageUnavailableError``."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from lorebank_server.domain.keys import ApiKey
from lorebank_server.domain.principal import Principal
from lorebank_server.domain.space import Space


@dataclass(frozen=True, slots=True)
class Credential:
    """A key as authentication needs it, with the principal that it stands for."""

    secret_hash: bytes
    principal: Principal
    expire_time: datetime | None
    revoked: bool


class Administration(Protocol):
    """Spaces and keys. Spaces that the principal may not manage do not exist for it."""

    async def credential(self, key_id: str) -> Credential | None:
        """The key with this id, in whatever state; None when there is none."""
        ...

    async def open_space(self, space: str) -> int | None:
        """The number of ``space`` as long as no key was ever created anywhere; None afterwards."""
        ...

    async def touch_keys(self, key_ids: Iterable[str], *, time: datetime) -> None:
        """Note that keys were used."""
        ...

    async def create_space(self, principal: Principal, space: Space, *, time: datetime) -> Space | None:
        """Write a space, whose number is ignored; None when its id is taken."""
        ...

    async def space(self, principal: Principal, space_id: str) -> Space | None:
        """One space by its id."""
        ...

    async def list_spaces(self, principal: Principal, *, after: str, limit: int) -> list[Space]:
        """Spaces with an id above ``after``, in the order of their ids."""
        ...

    async def update_space(self, principal: Principal, space: Space) -> bool:
        """Write a space's policies if its revision is still the one given, and count the revision on."""
        ...

    async def space_contents(self, principal: Principal, space: Space) -> tuple[int, str]:
        """How many memories a space holds in all, and a digest that changes with any of them."""
        ...

    async def delete_space(self, principal: Principal, space: Space, *, digest: str) -> bool:
        """Delete a space with everything in it, beyond recovery, if its digest is still the one given."""
        ...

    async def create_key(self, principal: Principal, space: Space, key: ApiKey, *, secret_hash: bytes) -> bool:
        """Write a key; False when its id is taken."""
        ...

    async def list_keys(self, principal: Principal, space: Space, *, after: str, limit: int) -> list[ApiKey]:
        """Keys of a space with an id above ``after``, in the order of their ids; revoked ones too."""
        ...

    async def revoke_key(self, principal: Principal, space: Space, key_id: str, *, time: datetime) -> ApiKey | None:
        """Revoke a key, for good; a revoked one stays as it is. None when there is none."""
        ...
