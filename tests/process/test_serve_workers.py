"""Several serving processes behind one address."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import grpc
import psutil
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub

from bench.chaos import inspect, storing
from bench.service import Service, service_folder, until
from lorebank import AsyncClient, Memory

WORKERS = 2
MOST_CONNECTIONS = 64
"""By then one of two has none with a probability of one in 10^19."""

LONG_CALL_ITEMS = 30


@pytest.fixture(scope="module")
async def several(database_factory) -> AsyncIterator[Service]:
    """A server of two serving processes, for tests that leave it as it is."""
    with service_folder() as folder:
        service = Service(folder)
        await start(service, LOREBANK_DATABASE_URL=await database_factory())
        yield service
        await asyncio.to_thread(service.stop)


async def start(service: Service, **variables: str) -> None:
    """Start two serving processes; both serve."""
    service.start(LOREBANK_WORKERS=str(WORKERS), **variables)
    await until(lambda: len(served(service)) == WORKERS, timeout_s=60)
    await service.ready()


def served(service: Service) -> list[str]:
    """The addresses that serving processes said they serve, in order."""
    lines = [json.loads(line) for line in service.log.read_text().splitlines() if '"serving"' in line]
    return [line["address"] for line in lines if line["event"] == "serving"]


def connections_of(pid: int, service: Service) -> int:
    port = int(service.address.rpartition(":")[2])
    return sum(
        connection.status == psutil.CONN_ESTABLISHED and connection.laddr.port == port
        for connection in psutil.Process(pid).net_connections("tcp")
    )


async def test_connections_are_spread_over_both(several: Service):
    pids = several.pids_of("worker")
    async with AsyncExitStack() as stack:
        for _ in range(MOST_CONNECTIONS):
            options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(several.address, options=options))
            await HealthStub(channel).Check(HealthCheckRequest(), timeout=5.0)
            shares = [connections_of(pid, several) for pid in pids]
            if all(shares):
                break
    assert WORKERS == len(set(pids)) == len(shares)
    assert all(shares)


async def test_what_one_stores_the_other_finds(several: Service):
    content = "The projector in room four needs an adapter."
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(AsyncClient(several.address)) for _ in range(8)]
        await clients[0].store(content)
        answers = [await client.find("which room lacks a plug for the beamer?") for client in clients]
    assert [content] * len(clients) == [answer.hits[0].memory.content for answer in answers]


async def test_one_that_is_killed_loses_nothing_and_comes_back(service: Service):
    await start(service)
    killed, *others = service.pids_of("worker")
    async with storing(service, own_connections=True) as load:
        await until(lambda: len(load.stored) >= 20, timeout_s=60)
        psutil.Process(killed).kill()
        await until(lambda: len(served(service)) > WORKERS, timeout_s=60)
        now = service.pids_of("worker")
        goal = len(load.stored) + 20
        await until(lambda: len(load.stored) >= goal, timeout_s=60)
    assert WORKERS == len(now)
    assert set(others) <= set(now)
    assert killed not in now
    assert 0 == await asyncio.to_thread(service.stop)
    outcome = await inspect(service, load)
    assert outcome.clean, outcome


async def test_sigterm_lets_both_finish(service: Service, database):
    await start(service, LOREBANK_DATABASE_URL=database)
    pids = service.pids_of("worker")
    async with AsyncExitStack() as stack:
        clients: list[AsyncClient] = []
        while not all(connections_of(pid, service) for pid in pids):
            client = await stack.enter_async_context(AsyncClient(service.address))
            await client.spaces.get()
            clients.append(client)
        stores = [asyncio.create_task(stored(client, number)) for number, client in enumerate(clients)]
        # One connection, in order: answered, it shows that the server has taken the call before it.
        await asyncio.gather(*(client.spaces.get() for client in clients))
        service.process.terminate()
        await until(lambda: service.log.read_text().count('"draining"') == WORKERS)
        counts = await asyncio.gather(*stores)
    assert [LONG_CALL_ITEMS] * len(clients) == counts
    assert 0 == await asyncio.to_thread(service.process.wait, 30)
    assert [] == service.survivors()


async def test_another_server_on_their_address_is_refused(several: Service, lorebank, database):
    for workers in ("1", "2"):
        second = await lorebank(
            "serve", LOREBANK_DATABASE_URL=database, LOREBANK_LISTEN=several.address, LOREBANK_WORKERS=workers
        )
        assert 78 == second.code
        assert f"Cannot listen on {several.address}: another program has that port" in second.err


async def test_two_on_the_address_of_another_server_are_refused(serving: Service, lorebank, database):
    second = await lorebank(
        "serve", LOREBANK_DATABASE_URL=database, LOREBANK_LISTEN=serving.address, LOREBANK_WORKERS="2"
    )
    assert 78 == second.code
    assert f"Cannot listen on {serving.address}: another program has that port" in second.err


async def stored(client: AsyncClient, number: int) -> int:
    memories = [Memory(content=f"Note {number}-{item}: " + "late. " * 60) for item in range(LONG_CALL_ITEMS)]
    items = client.store_many(memories, batch_size=LONG_CALL_ITEMS)
    return sum([1 async for item in items if item.HasField("response")])
