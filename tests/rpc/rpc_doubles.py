"""A real server on a free port, with fakes behind the operations' ports."""

from contextlib import asynccontextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from uuid import UUID

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from lorebank_server.domain.errors import UnauthenticatedError
from lorebank_server.domain.memory import Draft, Kind, Memory, Polarity, Scope, State, Usage
from lorebank_server.domain.principal import Principal, Role
from lorebank_server.domain.quality import Quality

NOW = datetime(2026, 3, 4, 5, 6, 7, 89_000, tzinfo=UTC)
UID = UUID("0190a5c4-7d10-7b3e-9d43-6f1f0c2b8a11")


def principal(role=Role.WRITER, **changes):
    return Principal(**{"space_id": 7, "space": "acme", "owner": "ann", "role": role, **changes})


class FakeAuthenticator:
    """Knows one key per role, called by its name."""

    def __init__(self):
        self.forgotten = []

    async def authenticate(self, secret):
        if secret is None or secret.upper() not in Role.__members__:
            raise UnauthenticatedError("no", reason="CREDENTIAL_REQUIRED")
        return principal(Role[secret.upper()])

    def forget(self, key_id):
        self.forgotten.append(key_id)


def a_memory(**changes):
    quality = Quality(
        retention=0.5,
        reputation=0.7,
        strength=0.4,
        stale=False,
        upvotes=1,
        downvotes=2,
        citations=3,
        successes=4,
        failures=5,
        policy="bayes-v2",
        age_days=6.0,
    )
    draft = Draft(
        content="Water boils at 100 degrees.", kind=Kind.SEMANTIC, polarity=Polarity.POSITIVE, scope=Scope.USER
    )
    values = {
        "id": "a1B2c3D4",
        "uid": UID,
        "draft": draft,
        "owner": "ann",
        "state": State.ACTIVE,
        "revision": 3,
        "quality": quality,
        "usage": Usage(use_count=9, last_used_time=NOW),
        "content_hash": "00ff",
        "create_time": NOW,
        "update_time": NOW,
        "supersedes": ("b1", "b2"),
    }
    return Memory(**(values | changes))


def failure_of(error):
    """Code, status and details (by type name) of a call that failed."""
    metadata = dict(error.trailing_metadata())
    status = status_pb2.Status.FromString(metadata["grpc-status-details-bin"])
    details = {}
    for packed in status.details:
        name = packed.TypeName().rpartition(".")[2]
        details[name] = getattr(error_details_pb2, name)()
        packed.Unpack(details[name])
    assert (error.code().value[0], error.details()) == (status.code, status.message)
    return SimpleNamespace(code=error.code(), message=status.message, info=details["ErrorInfo"], details=details)


async def failing(call):
    """What a call fails with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return failure_of(caught.value)


@asynccontextmanager
async def started(server, port):
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel
    finally:
        await server.stop(None)


def bearer(role):
    return (("authorization", f"Bearer {role}"),)
