"""A whole server that searches on Qdrant, as its settings say."""

from lorebank import AsyncClient
from lorebank_server.config import Settings
from lorebank_server.serving import qdrant_spec


async def test_a_memory_is_written_to_qdrant_and_found_there(double, server_factory):
    async with (
        server_factory(qdrant_url=double.url, qdrant_prefix="shop") as server,
        AsyncClient(server.address) as client,
    ):
        stored = await client.store("The staging database is refreshed every Sunday night.")
        answer = await client.find("When do we get fresh data on staging?")
    assert [hit.memory.id for hit in answer.hits] == [stored.memory.id]
    assert answer.hits[0].parts.similarity > 0.2
    assert list(answer.degraded) == []
    [upsert] = double.sent("Upsert")
    assert upsert.collection_name == "shop-1-384"
    assert upsert.points[0].id.uuid == stored.memory.uid
    assert double.sent("Query")


def test_every_setting_of_qdrant_reaches_the_store(tmp_path):
    given = {
        "url": "https://qdrant:6334",
        "api_key": "k",
        "ca_file": tmp_path,
        "timeout_s": 3.0,
        "write_timeout_s": 4.0,
        "prefix": "p",
        "payload_m": 5,
        "ef_construct": 6,
        "quantization": "int8",
        "on_disk": True,
        "shards": 7,
        "replicas": 9,
        "write_consistency": 8,
        "hnsw_ef": 10,
        "exact": True,
        "oversampling": 11.0,
    }
    named = {name.removeprefix("qdrant_") for name in Settings.model_fields if name.startswith("qdrant_")}
    assert named == set(given)
    spec = qdrant_spec(Settings(**{f"qdrant_{name}": value for name, value in given.items()}))
    assert given == {name: getattr(spec, name) for name in given}


def test_without_an_address_there_is_no_store():
    assert qdrant_spec(Settings()) is None
