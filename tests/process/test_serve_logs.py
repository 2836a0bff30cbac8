"""Memory text, queries and keys are in no log, whatever goes wrong."""

import asyncio
import json
from contextlib import suppress
from urllib.parse import quote

import asyncpg
import grpc
import pytest

from bench.service import Service
from lorebank import AsyncClient
from lorebank.errors import LorebankError
from lorebank.v1.find_pb2 import FindRequest
from lorebank_server.postgres.cluster import PORT

CANARY = "zanzibar"
"""Part of everything that a caller sends in this test."""


async def test_nothing_that_a_caller_sent_is_in_the_logs(service: Service):
    service.start(LOREBANK_LOG_LEVEL="debug", PYTHONASYNCIODEBUG="1")
    await service.ready()
    async with AsyncClient(service.address) as client, AsyncClient(service.address, api_key=f"lb_{CANARY}_key") as liar:
        await client.store(f"The {CANARY} fact.", key=f"{CANARY}-key", tags=[CANARY], subject=CANARY)
        await client.find(f"who knows {CANARY}?", subjects=[CANARY], tags_any=[CANARY])
        await misuse(client, liar)
        await send_malformed(service.address)
        told = await fail_in_sql(service, client)
    service.stop()
    logs = {
        path: path.read_text()
        for path in [service.log, *service.data_dir.glob("log/*"), *service.data_dir.glob("*.log")]
    }
    failures = [json.loads(line) for line in logs[service.log].splitlines() if "request_failed" in line]
    assert [told] == [failure["request_id"] for failure in failures]
    assert "CheckViolationError: [message withheld]" in failures[0]["error"]
    assert [] == [str(path) for path, text in logs.items() if CANARY in text.lower()]
    assert {"postgresql", "server", "start"} == {path.name.partition("-")[0].partition(".")[0] for path in logs}


async def misuse(client: AsyncClient, liar: AsyncClient) -> None:
    """Calls that are refused, each for what it says."""
    calls = [
        client.store(f"Another {CANARY} fact.", key=f"{CANARY}-key"),
        client.store(f"A {CANARY} \x00 fact."),
        client.store(f"A {CANARY} fact.", category=CANARY),
        client.store(f"A {CANARY} fact.", links=[(CANARY, CANARY)]),
        client.store(f"{CANARY} " * 2000),
        client.store(f"A {CANARY} fact.", request_id=CANARY),
        client.find(f"{CANARY} " * 5000),
        client.find(similar_to=CANARY),
        client.get(CANARY),
        client.get(key=f"{CANARY}-other"),
        client.update(CANARY, title=f"{CANARY} title"),
        client.supersede(CANARY, f"The {CANARY} fact anew."),
        client.upvote(CANARY, run=CANARY, reason=f"{CANARY} helped"),
        liar.find(f"who knows {CANARY}?"),
    ]
    for call in calls:
        with pytest.raises(LorebankError):
            await call


async def send_malformed(address: str) -> None:
    """Bytes that are no message, a message with text that is no UTF-8, and a method that is not there."""
    text = f"{CANARY} \xff".encode("latin-1")
    field = FindRequest.DESCRIPTOR.fields_by_name["query"].number
    bodies = [CANARY.encode(), bytes([field << 3 | 2, len(text)]) + text]
    async with grpc.aio.insecure_channel(address) as channel:
        for method in ("Find", quote(CANARY)):
            for body in bodies:
                with pytest.raises(grpc.aio.AioRpcError):
                    await channel.unary_unary(f"/lorebank.v1.MemoryService/{method}")(body, timeout=5.0)


async def fail_in_sql(service: Service, client: AsyncClient) -> str:
    """A store that Postgres refuses with an error that quotes the row; returns the id that the caller is told."""
    socket_folder = quote(str(service.data_dir / "run"), safe="")
    connection = await asyncpg.connect(f"postgresql://lorebank@/lorebank?host={socket_folder}&port={PORT}")
    await connection.execute("alter table memories add constraint broken check (false) not valid")
    with suppress(asyncpg.PostgresError):
        await connection.execute(f"select '{CANARY}'::int")
    await connection.close()
    with pytest.raises(LorebankError) as caught:
        await asyncio.wait_for(client.store(f"A {CANARY} fact that breaks."), 10.0)
    assert CANARY not in str(caught.value)
    return caught.value.metadata["request_id"]
