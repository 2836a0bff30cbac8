"""API keys."""

from collections.abc import Sequence
from datetime import UTC, datetime

from lorebank.v1 import key_pb2
from lorebank_server.domain.keys import ApiKey
from lorebank_server.domain.principal import Role
from lorebank_server.rpc.conversion.values import set_time, time_or_none

_NOT_YET = datetime.min.replace(tzinfo=UTC)


def to_new_key(message: key_pb2.Key) -> ApiKey:
    """A key to create; its id and the time of its creation are for the operation to fill in."""
    return ApiKey(
        id="",
        display_name=message.display_name,
        owner=message.owner,
        roles=tuple(sorted({Role(role) for role in message.roles})),
        project=message.project,
        create_time=_NOT_YET,
        expire_time=time_or_none(message, "expire_time"),
    )


def from_key(key: ApiKey) -> key_pb2.Key:
    """The message of a key, which never has its secret."""
    message = key_pb2.Key(
        id=key.id,
        display_name=key.display_name,
        owner=key.owner,
        project=key.project,
        revoked=key.revoke_time is not None,
    )
    message.roles.extend(int(role) for role in key.roles)  # type: ignore[misc]
    set_time(message.expire_time, key.expire_time)
    set_time(message.create_time, key.create_time)
    set_time(message.last_used_time, key.last_used_time)
    return message


def from_key_page(keys: Sequence[ApiKey], next_page_token: str) -> key_pb2.ListKeysResponse:
    """One page of keys."""
    return key_pb2.ListKeysResponse(keys=[from_key(key) for key in keys], next_page_token=next_page_token)
