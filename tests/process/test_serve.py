"""One command and it serves, to any client that speaks gRPC."""

import json

import pytest

from bench.service import Service
from lorebank_server.rpc.health import SERVICE_NAMES


async def test_reflection_lists_and_describes_the_services(serving: Service, grpcurl):
    listed = await grpcurl(serving.address, "list")
    described = await grpcurl(serving.address, "describe", "lorebank.v1.MemoryService")
    assert {*SERVICE_NAMES, "grpc.health.v1.Health"} <= set(listed.out.split())
    assert "rpc Store ( .lorebank.v1.StoreRequest ) returns ( .lorebank.v1.StoreResponse );" in described.out


async def test_what_any_grpc_client_stores_is_found_by_its_meaning(serving: Service, grpcurl, lorebank):
    content = "The staging database is wiped every Monday morning."
    request = json.dumps({"memory": {"content": content}})
    stored = await grpcurl("-d", request, serving.address, "lorebank.v1.MemoryService/Store")
    assert (0, "") == (stored.code, stored.err)
    memory = json.loads(stored.out)["memory"]
    found = await lorebank("find", "when does the test environment lose its data?", LOREBANK_SERVER=serving.address)
    assert (0, "") == (found.code, found.err)
    assert memory["id"] in found.out
    assert content in found.out


@pytest.mark.parametrize("name", ["", *SERVICE_NAMES])
async def test_every_service_is_healthy(serving: Service, grpcurl, name):
    request = json.dumps({"service": name})
    answer = await grpcurl("-d", request, serving.address, "grpc.health.v1.Health/Check")
    assert {"status": "SERVING"} == json.loads(answer.out)


async def test_it_logs_json_lines_that_say_where_it_serves(serving: Service):
    lines = [json.loads(line) for line in serving.log.read_text().splitlines()]
    (told,) = [line for line in lines if line["event"] == "serving"]
    assert serving.address == told["address"]


async def test_a_second_server_on_the_data_folder_is_refused(serving: Service, lorebank):
    second = await lorebank("serve", LOREBANK_DATA_DIR=str(serving.data_dir), LOREBANK_LISTEN="127.0.0.1:0")
    assert 78 == second.code
    assert f"The data folder {serving.data_dir} is in use by process {serving.process.pid}" in second.err


async def test_a_second_server_on_the_port_is_refused(serving: Service, lorebank, database):
    second = await lorebank("serve", LOREBANK_DATABASE_URL=database, LOREBANK_LISTEN=serving.address)
    assert 78 == second.code
    assert f"Cannot listen on {serving.address}: another program has that port" in second.err


async def test_a_setting_that_means_nothing_is_refused(lorebank):
    refused = await lorebank("serve", LOREBANK_LISTN="127.0.0.1:0")
    assert (78, "LOREBANK_LISTN is no setting of Lorebank; the closest is LOREBANK_LISTEN\n") == (
        refused.code,
        refused.err,
    )


async def test_config_tells_every_setting_and_its_source_without_secrets(lorebank):
    shown = await lorebank(
        "config",
        "--json",
        LOREBANK_LISTEN="127.0.0.1:6000",
        LOREBANK_DATABASE_URL="postgresql://me:hidden@host/lorebank",
    )
    rows = {row["name"]: row for row in json.loads(shown.out)}
    assert 0 == shown.code
    assert ("127.0.0.1:6000", "environment") == (rows["LOREBANK_LISTEN"]["value"], rows["LOREBANK_LISTEN"]["source"])
    assert "default" == rows["LOREBANK_AUTH"]["source"]
    assert "hidden" not in shown.out
