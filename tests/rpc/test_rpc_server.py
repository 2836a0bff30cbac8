import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from rpc_doubles import NOW, UID, a_memory, bearer, failing, started

from lorebank.v1 import (
    key_pb2,
    memory_service_pb2_grpc,
    read_pb2,
    space_service_pb2_grpc,
    store_pb2,
)
from lorebank_server.domain.errors import StorageUnavailableError
from lorebank_server.domain.keys import ApiKey
from lorebank_server.domain.packs import Vocabulary
from lorebank_server.domain.principal import Role
from lorebank_server.operations.embedders import Embedders
from lorebank_server.operations.services import Services
from lorebank_server.operations.spaces import default_space
from lorebank_server.rpc.health import HealthServicer
from lorebank_server.rpc.server import build_server, watch_storage

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
SERVICES = ["lorebank.v1.KnowledgeService", "lorebank.v1.MemoryService", "lorebank.v1.SpaceService"]


class Storage:
    """Holds one memory, and fails as it is told to."""

    def __init__(self):
        self.memory = a_memory()
        self.checks = asyncio.Queue()
        self.space = default_space("acme")

    @asynccontextmanager
    async def reading(self, _principal):
        yield self

    async def memories_by_id(self, ids):
        return {self.memory.id: self.memory} if self.memory.id in ids else {}

    async def memories_by_uid(self, uids):
        return {UID: self.memory} if UID in uids else {}

    async def memory_by_key(self, key):
        return self.memory if key == "boiling" else None

    async def answers(self, request_ids):
        return dict.fromkeys(request_ids)

    async def exact_matches(self, _content_hashes):
        return []

    async def check(self):
        if not await self.checks.get():
            raise StorageUnavailableError("away", reason="STORAGE_UNAVAILABLE")


class Administration:
    async def space(self, _principal, space_id):
        return default_space(space_id) if space_id == "acme" else None

    async def revoke_key(self, _principal, _space, key_id, *, time):
        return ApiKey(key_id, "CI", "ann", (Role.READER,), "", NOW, revoke_time=time)


def services_on(storage):
    return Services(
        storage=storage,
        administration=Administration(),
        embedders=Embedders({1: SimpleNamespace(model="tiny", dimensions=3)}, primary=1),
        vectors=None,
        vocabulary=Vocabulary([]),
        usage=None,
        inventory=None,
        reindexing=None,
        index_rebuild=None,
        new_uid=lambda: UID,
        clock=lambda: NOW,
    )


@pytest.fixture
async def channel(authenticator):
    built = build_server(
        services=services_on(Storage()), authenticator=authenticator, interceptors=[], listen="127.0.0.1:0"
    )
    async with started(built.server, built.port) as channel:
        yield channel


async def test_health_needs_no_credential_and_waits_for_storage(channel):
    stub = health_pb2_grpc.HealthStub(channel)
    found = [(await stub.Check(health_pb2.HealthCheckRequest(service=name))).status for name in ("", *SERVICES)]
    assert [NOT_SERVING] * 4 == found


async def test_reflection_needs_no_credential_and_names_every_service(channel):
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
    names = sorted([service.name async for answer in call for service in answer.list_services_response.service])
    assert ["grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection", *SERVICES] == names


@pytest.mark.parametrize("name", [{"id": "a1B2c3D4"}, {"uid": str(UID).upper()}, {"key": "boiling"}])
async def test_a_memory_is_read_by_any_of_its_names(channel, name):
    stub = memory_service_pb2_grpc.MemoryServiceStub(channel)
    response = await stub.GetMemory(read_pb2.GetMemoryRequest(**name), metadata=bearer("reader"))
    assert ("a1B2c3D4", str(UID)) == (response.memory.id, response.memory.uid)


async def test_a_memory_is_read_in_the_view_asked_for(channel):
    stub = memory_service_pb2_grpc.MemoryServiceStub(channel)
    request = read_pb2.BatchGetMemoriesRequest(ids=["gone", "a1B2c3D4"], view="VIEW_SUMMARY")
    response = await stub.BatchGetMemories(request, metadata=bearer("reader"))
    assert (["a1B2c3D4"], ["gone"]) == ([memory.id for memory in response.memories], list(response.missing))
    assert not response.memories[0].HasField("usage")


async def test_a_bad_item_does_not_fail_its_batch(channel):
    stub = memory_service_pb2_grpc.MemoryServiceStub(channel)
    items = [
        {"memory": {"content": "a\x00b"}},
        {"memory": {"content": "Long enough."}, "space": "other"},
        {"memory": {"content": "Long enough."}, "propose": True},
        {"memory": {"content": "Long enough."}, "request_id": "once"},
        {"memory": {"content": "x"}, "space": "acme"},
    ]
    response = await stub.BatchStore(store_pb2.BatchStoreRequest(requests=items), metadata=bearer("writer"))
    assert [
        (3, "INVALID_FIELD"),
        (3, "INVALID_FIELD"),
        (3, "FIELD_NOT_SUPPORTED"),
        (3, "INVALID_FIELD"),
        (3, "INVALID_FIELD"),
    ] == [(item.failure.code, item.failure.reason) for item in response.items]
    assert "memory.content" in response.items[0].failure.message


@pytest.mark.parametrize("count", [0, 501])
async def test_a_batch_has_a_size(channel, count):
    stub = memory_service_pb2_grpc.MemoryServiceStub(channel)
    request = store_pb2.BatchStoreRequest(requests=[store_pb2.StoreRequest()] * count)
    failure = await failing(stub.BatchStore(request, metadata=bearer("writer")))
    assert (grpc.StatusCode.INVALID_ARGUMENT, "BATCH_SIZE") == (failure.code, failure.info.reason)


async def test_a_revoked_key_is_forgotten_at_once(channel, authenticator):
    stub = space_service_pb2_grpc.SpaceServiceStub(channel)
    response = await stub.RevokeKey(key_pb2.RevokeKeyRequest(id="k1"), metadata=bearer("admin"))
    assert response.key.revoked
    assert ["k1"] == authenticator.forgotten


async def test_two_servers_do_not_share_a_port(authenticator):
    services = services_on(Storage())
    first = build_server(services=services, authenticator=authenticator, listen="127.0.0.1:0")
    with pytest.raises(RuntimeError):
        build_server(services=services, authenticator=authenticator, listen=f"127.0.0.1:{first.port}")
    await first.server.stop(None)


async def test_health_follows_storage():
    storage, servicer = Storage(), HealthServicer()
    reported = asyncio.Queue()
    keep = servicer.set

    async def heard(service, status):
        await keep(service, status)
        if service == SERVICES[-1]:
            reported.put_nowait(status)

    servicer.set = heard
    watching = asyncio.create_task(watch_storage(services_on(storage), servicer, interval_s=0.0))
    seen = []
    for answers in (True, False, True):
        storage.checks.put_nowait(answers)
        seen.append(await asyncio.wait_for(reported.get(), 10))
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
    assert [SERVING, NOT_SERVING, SERVING] == seen
    assert SERVING == (await servicer.Check(health_pb2.HealthCheckRequest(service=""), None)).status
