"""SIGTERM: what was taken on is finished, nothing more is taken, and nobody is left behind."""

import asyncio
import socket

import psutil

from bench.chaos import inspect, storing
from bench.service import Service, until
from lorebank import AsyncClient, Memory

LONG_CALL_ITEMS = 40


def refuses_connections(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1.0).close()
    except ConnectionRefusedError:
        return True
    return False


async def test_sigterm_finishes_the_calls_under_way_and_takes_no_others(service: Service):
    service.start()
    await service.ready()
    processes = psutil.Process(service.process.pid).children(recursive=True)
    async with AsyncClient(service.address) as client:
        await client.store("The pager of the night shift lies in the kitchen.")
        memories = [Memory(content=f"Note {number}: " + "a parcel is late. " * 40) for number in range(LONG_CALL_ITEMS)]
        stores = asyncio.create_task(results(client, memories))
        finds = [asyncio.create_task(client.find(f"where is pager {number}?")) for number in range(4)]
        # One connection, in order: answered, it shows that the server has taken the calls before it.
        await asyncio.create_task(client.spaces.get())
        service.process.terminate()
        await until(lambda: refuses_connections(service.address))
        under_way = not stores.done()
        created = await stores
        answers = await asyncio.gather(*finds)
    assert under_way
    assert LONG_CALL_ITEMS == created
    assert [1] * len(finds) == [sum("pager" in hit.memory.content for hit in answer.hits) for answer in answers]
    assert 0 == await asyncio.to_thread(service.process.wait, 30)
    assert [] == [process for process in processes if lives(process)]
    assert [] == service.survivors()


async def test_a_restart_under_load_is_waited_out_by_the_client(service: Service):
    service.start()
    await service.ready()
    async with storing(service) as load:
        for _ in range(2):
            before = len(load.stored)
            await until(lambda goal=before + 20: len(load.stored) > goal)
            assert 0 == await asyncio.to_thread(service.stop)
            service.start()
            await service.ready()
    assert 0 == await asyncio.to_thread(service.stop)
    outcome = await inspect(service, load)
    assert outcome.clean, outcome


def lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def results(client: AsyncClient, memories: list[Memory]) -> int:
    items = client.store_many(memories, batch_size=LONG_CALL_ITEMS)
    return sum([1 async for item in items if item.HasField("response")])
