"""What a server refuses to start with, and the way out that it names."""

import asyncio
import json
import os
import sys

import asyncpg
import pytest

from bench.service import Service, clean_environment, free_port, service_folder
from lorebank import AsyncClient
from lorebank.errors import Unauthenticated

ANY_PORT = "127.0.0.1:0"
FACT = "Invoices above ten thousand need a second signature."


async def test_a_schema_from_the_future_is_refused(database, lorebank):
    connection = await asyncpg.connect(database)
    await connection.execute("insert into schema_migrations (number, name) values (9999, 'later')")
    await connection.close()
    refused = await lorebank("serve", LOREBANK_DATABASE_URL=database, LOREBANK_LISTEN=ANY_PORT)
    assert 78 == refused.code
    assert "The database has schema 9999" in refused.err
    assert "Start the newer server it was last used with, or restore a backup" in refused.err


async def test_a_database_that_is_away_is_told_in_words(lorebank):
    url = f"postgresql://me:hidden@127.0.0.1:{free_port()}/lorebank"
    refused = await lorebank("migrate", LOREBANK_DATABASE_URL=url)
    assert (78, "") == (refused.code, refused.out)
    assert refused.err.startswith("The database does not answer for now.")
    assert "hidden" not in refused.err


async def test_a_database_that_does_not_exist_is_told_in_words(postgres, lorebank):
    url = postgres.dsn.replace("/lorebank?", "/nowhere?")
    refused = await lorebank("serve", LOREBANK_DATABASE_URL=url, LOREBANK_LISTEN=ANY_PORT)
    assert 78 == refused.code
    assert 'database \\"nowhere\\" does not exist' in refused.err
    assert "Traceback" not in refused.err


async def test_a_worker_that_fails_says_so_in_one_line_without_quoting_rows(database):
    connection = await asyncpg.connect(database)
    await connection.execute("alter table embedding_models add constraint broken check (model = '')")
    await connection.close()
    environment = clean_environment() | {"LOREBANK_DATABASE_URL": database, "LOREBANK_LISTEN": ANY_PORT}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "lorebank_server.worker", env=environment, stderr=asyncio.subprocess.PIPE
    )
    _, err = await process.communicate()
    (line,) = err.splitlines()
    failure = json.loads(line)
    assert 1 == process.returncode
    assert ("worker_failed", "CheckViolationError: [message withheld] 23514") == (failure["event"], failure["error"])
    assert b"MiniLM" not in err


async def test_an_endpoint_that_is_away_at_the_start_is_a_reason_to_start_again(database, unused_tcp_port):
    environment = clean_environment() | {
        "LOREBANK_DATABASE_URL": database,
        "LOREBANK_LISTEN": ANY_PORT,
        "LOREBANK_EMBEDDING_URL": f"http://127.0.0.1:{unused_tcp_port}/v1",
        "LOREBANK_EMBEDDING_MODEL": "remote",
        "NO_PROXY": "127.0.0.1",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "lorebank_server.worker", env=environment, stderr=asyncio.subprocess.PIPE
    )
    _, err = await process.communicate()
    assert os.EX_TEMPFAIL == process.returncode
    assert "EMBEDDER_UNAVAILABLE" == json.loads(err)["reason"]


async def test_a_model_that_the_server_lacks_is_refused_until_everything_is_embedded_anew(
    service: Service, server_factory, database, lorebank, another_model
):
    async with server_factory(dsn=database) as live, AsyncClient(live.address) as client:
        stored = await client.store(FACT)
    own = {"LOREBANK_DATABASE_URL": database}
    other = {**own, "LOREBANK_EMBEDDING_MODEL_DIR": str(another_model)}
    moved = await lorebank("reindex", "--direct", **other)
    assert (0, "Embedded 1 memories.\n") == (moved.code, moved.out)
    refused = await lorebank("serve", **own, LOREBANK_LISTEN=ANY_PORT)
    assert 78 == refused.code
    for way_out in ("set the LOREBANK_EMBEDDING_* settings back", "'lorebank reindex --model NAME'", "--direct'"):
        assert way_out in refused.err
    service.start(**other)
    await service.ready()
    async with AsyncClient(service.address) as client:
        answer = await client.find("who has to approve large bills?", mode="semantic")
    assert [stored.memory.id] == [hit.memory.id for hit in answer.hits]


async def test_beyond_loopback_it_wants_a_key_which_the_command_makes_without_a_server(lorebank):
    with service_folder() as folder:
        service = Service(folder)
        everywhere = f"0.0.0.0:{service.address.rpartition(':')[2]}"
        own = {"LOREBANK_DATA_DIR": str(service.data_dir)}
        migrated = await lorebank("migrate", **own)
        again = await lorebank("migrate", **own)
        refused = await lorebank("serve", **own, LOREBANK_LISTEN=everywhere)
        created = await lorebank("keys", "create", "--direct", "--owner", "maren", "--role", "admin", **own)
        secret = next(line.split()[1] for line in created.out.splitlines() if line.startswith("secret"))
        service.start(LOREBANK_LISTEN=everywhere)
        try:
            await service.ready()
            async with AsyncClient(service.address, api_key=secret) as client:
                stored = await client.store(FACT)
            async with AsyncClient(service.address) as stranger:
                with pytest.raises(Unauthenticated):
                    await stranger.find("invoices")
        finally:
            service.stop()
        logged = service.log.read_text()
    assert migrated.out.startswith("applied 0001 memories\n")
    assert "The schema is up to date.\n" == again.out
    assert 78 == refused.code
    assert "'lorebank keys create --direct --owner NAME --role admin'" in refused.err
    assert "maren" == stored.memory.owner
    assert secret not in logged
