"""Who calls: from a credential to a principal, and from a principal to the space it may act in."""

import hmac
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from lorebank_server.domain.errors import NotFoundError, PermissionDeniedError, UnauthenticatedError
from lorebank_server.domain.ids import hash_secret, key_id_of
from lorebank_server.domain.principal import OPERATOR_SPACE, Principal, Role
from lorebank_server.operations.services import utc_now
from lorebank_server.ports.administration import Administration

CACHE_SECONDS = 5.0
_CACHE_ENTRIES = 10_000
_TOUCH_INTERVAL = timedelta(seconds=60)
LOCAL_OWNER = "local"


@dataclass(slots=True)
class _Remembered:
    principal: Principal
    expire_time: datetime | None
    read_time: datetime
    touch_time: datetime


class Authenticator:
    """Turns credentials into principals, remembering good ones for five seconds.

    A key revoked through this process is forgotten at once; one revoked elsewhere holds for at most that long.
    """

    def __init__(
        self, administration: Administration, *, open_locally: bool, clock: Callable[[], datetime] = utc_now
    ) -> None:
        self._administration = administration
        self._open_locally = open_locally
        self._clock = clock
        self._remembered: OrderedDict[bytes, _Remembered] = OrderedDict()
        self._forgotten = 0

    async def authenticate(self, secret: str | None) -> Principal:
        """The principal of an API key; without one, the local admin while that is allowed.

        Raises:
            UnauthenticatedError: There is no credential, or it is wrong, expired or revoked.
        """
        if secret is None:
            return await self._local_principal()
        now = self._clock()
        secret_hash = hash_secret(secret)
        known = self._remembered.get(secret_hash)
        if known is None or (now - known.read_time).total_seconds() > CACHE_SECONDS:
            known = await self._read(secret, secret_hash, now)
        if known.expire_time is not None and known.expire_time <= now:
            raise _refused("has expired", "KEY_EXPIRED")
        if now - known.touch_time >= _TOUCH_INTERVAL:
            known.touch_time = now
            await self._administration.touch_keys([known.principal.key_id], time=now)
        return known.principal

    def forget(self, key_id: str) -> None:
        """Read a key again the next time it is used."""
        self._forget(lambda principal: principal.key_id == key_id)

    def forget_space(self, space: str) -> None:
        """Read every key of a space again the next time it is used."""
        self._forget(lambda principal: principal.space == space)

    def _forget(self, concerned: Callable[[Principal], bool]) -> None:
        self._forgotten += 1
        stale = [entry for entry, known in self._remembered.items() if concerned(known.principal)]
        for entry in stale:
            del self._remembered[entry]

    async def _local_principal(self) -> Principal:
        number = await self._administration.open_space(OPERATOR_SPACE) if self._open_locally else None
        if number is None:
            raise UnauthenticatedError(
                "This server asks for an API key: send the metadata 'authorization: Bearer <key>'.",
                reason="CREDENTIAL_REQUIRED",
            )
        return Principal(space_id=number, space=OPERATOR_SPACE, owner=LOCAL_OWNER, role=Role.ADMIN)

    async def _read(self, secret: str, secret_hash: bytes, now: datetime) -> _Remembered:
        before = self._remembered.pop(secret_hash, None)
        key_id = key_id_of(secret)
        forgotten = self._forgotten
        credential = await self._administration.credential(key_id) if key_id else None
        if credential is None or not hmac.compare_digest(credential.secret_hash, secret_hash):
            raise _refused("is not one of this server's", "KEY_UNKNOWN")
        if credential.revoked:
            raise _refused("was revoked", "KEY_REVOKED")
        touch_time = before.touch_time if before else now - _TOUCH_INTERVAL
        known = _Remembered(credential.principal, credential.expire_time, now, touch_time)
        if forgotten != self._forgotten:
            return known  # it may have been revoked since it was read: good for this call, and for no other
        self._remembered[secret_hash] = known
        while len(self._remembered) > _CACHE_ENTRIES:
            self._remembered.popitem(last=False)
        return known


def require_role(principal: Principal, role: Role) -> None:
    """Refuse a principal whose role does not reach ``role``."""
    if principal.role < role:
        raise PermissionDeniedError(
            f"This needs the role {role.name.lower()}; this credential has {principal.role.name.lower()}. "
            "Ask an admin of the space for a key with that role.",
            reason="ROLE_REQUIRED",
            metadata={"role": role.name.lower()},
        )


def require_governor(principal: Principal) -> None:
    """Refuse anyone but an admin whose credential reaches the whole space.

    An admin's key that is bound to a project governs nothing: it could give itself a key that is not bound.
    """
    require_role(principal, Role.ADMIN)
    if principal.project:
        raise PermissionDeniedError(
            f"This credential is bound to the project {principal.project!r}, and spaces and keys reach beyond it. "
            "Use an admin's key that is not bound to a project.",
            reason="UNBOUND_KEY_REQUIRED",
        )


def require_own_space(principal: Principal, space: str) -> None:
    """Refuse any space but the credential's own; another one and none at all look the same."""
    if space and space != principal.space:
        raise space_not_found(space)


def space_not_found(space: str) -> NotFoundError:
    """The one error for a space that is not there and one that is not the caller's."""
    return NotFoundError(
        f"There is no space {space[:64]!r} that this credential opens. Leave space out to use its own.",
        reason="SPACE_NOT_FOUND",
        metadata={"space": space[:64]},
    )


def _refused(why: str, reason: str) -> UnauthenticatedError:
    return UnauthenticatedError(f"The API key {why}. Ask an admin of the space for a new one.", reason=reason)
