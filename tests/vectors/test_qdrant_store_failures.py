"""Whatever goes wrong between Lorebank and Qdrant is one error with a reason, and quotes nothing."""

import asyncio
import itertools
import traceback

import grpc
import numpy as np
import pytest
import trustme
from vector_points import BUCKETS, GENERATION, NOW, point, unit_vector

from bench.qdrant_double import QdrantDouble
from lorebank_server.domain.errors import VectorIndexUnavailableError
from lorebank_server.domain.selector import Selector
from lorebank_server.ports.vector_store import Generation
from lorebank_server.vectors import QdrantSpec
from lorebank_server.vectors.qdrant import QdrantStore

UNAVAILABLE = "VECTOR_INDEX_UNAVAILABLE"
NOT_PREPARED = "VECTOR_INDEX_NOT_PREPARED"
MISCONFIGURED = "VECTOR_INDEX_MISCONFIGURED"
DEADLINE_S = 10
SECRET = "the launch code is 0000"


async def search(store):
    return await store.search(GENERATION, 1, BUCKETS, unit_vector(0), Selector(subjects=(SECRET,)), now=NOW, limit=10)


CALLS = {
    "GetCollection": lambda store: store.prepare(GENERATION),
    "Query": search,
    "Upsert": lambda store: store.upsert(GENERATION, [point(0, subject=SECRET)]),
    "DeletePoints": lambda store: store.delete(GENERATION, [point(0).uid]),
    "Scroll": lambda store: store.scan(GENERATION, space_id=None, after=None, limit=10),
    "DeleteCollection": lambda store: store.drop(GENERATION),
    "ListCollections": lambda store: store.check(),
}


async def failure(call):
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(VectorIndexUnavailableError) as caught:
            await call
    return caught.value


async def eventually(call):
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                return await call()
            except VectorIndexUnavailableError:
                await asyncio.sleep(0.02)


@pytest.fixture
async def prepared(connect):
    store = connect()
    await store.prepare(GENERATION)
    return store


@pytest.mark.parametrize("method", CALLS)
async def test_every_call_gives_up_when_no_answer_comes(method, double, connect):
    store = connect(timeout_s=0.1, write_timeout_s=0.1)
    await connect().prepare(GENERATION)
    double.hang(method)
    error = await failure(CALLS[method](store))
    assert (error.reason, dict(error.metadata)) == (UNAVAILABLE, {"cause": "Timeout"})
    double.heal()
    await CALLS[method](connect())


async def test_an_answer_that_is_slow_but_in_time_counts(double, prepared):
    double.delay_s = 0.05
    await prepared.upsert(GENERATION, [point(0, subject=SECRET)])
    assert list(await search(prepared)) == [point(0).uid]


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (grpc.StatusCode.UNAVAILABLE, UNAVAILABLE),
        (grpc.StatusCode.INTERNAL, UNAVAILABLE),
        (grpc.StatusCode.UNKNOWN, UNAVAILABLE),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, UNAVAILABLE),
        (grpc.StatusCode.DEADLINE_EXCEEDED, UNAVAILABLE),
        (grpc.StatusCode.FAILED_PRECONDITION, UNAVAILABLE),
        (grpc.StatusCode.NOT_FOUND, NOT_PREPARED),
        (grpc.StatusCode.UNAUTHENTICATED, MISCONFIGURED),
        (grpc.StatusCode.PERMISSION_DENIED, MISCONFIGURED),
        (grpc.StatusCode.INVALID_ARGUMENT, MISCONFIGURED),
        (grpc.StatusCode.UNIMPLEMENTED, MISCONFIGURED),
    ],
)
async def test_a_status_becomes_a_reason_without_its_words(status, reason, double, prepared):
    for method in ("Query", "Upsert"):
        double.fail(method, status, SECRET)
        error = await failure(CALLS[method](prepared))
        assert error.reason == reason
        told = "".join(traceback.format_exception(error)) + str(dict(error.metadata))
        assert SECRET not in told
        assert str(unit_vector(0)[0]) not in told


async def test_a_server_that_is_away_is_found_again(double, prepared):
    await prepared.upsert(GENERATION, [point(0, subject=SECRET)])
    await double.stop()
    error = await failure(search(prepared))
    assert (error.reason, dict(error.metadata)) == (UNAVAILABLE, {"status": "UNAVAILABLE"})
    await double.start()
    assert list(await eventually(lambda: search(prepared))) == [point(0).uid]


async def test_a_server_that_was_never_there_is_unavailable(unused_tcp_port):
    store = QdrantStore.connect(QdrantSpec(url=f"http://127.0.0.1:{unused_tcp_port}"))
    assert (await failure(store.prepare(GENERATION))).reason == UNAVAILABLE
    await store.aclose()


async def test_a_late_write_of_an_earlier_version_changes_nothing(double, connect):
    hasty, patient = connect(write_timeout_s=0.4), connect()
    await patient.prepare(GENERATION)
    held = double.hold("Upsert")
    assert (await failure(hasty.upsert(GENERATION, [point(0, version=1)]))).metadata == {"cause": "Timeout"}
    await patient.upsert(GENERATION, [point(0, version=2)])
    await asyncio.wait_for(held.land(), DEADLINE_S)
    assert [v.version for v in await patient.scan(GENERATION, space_id=None, after=None, limit=10)] == [2]


async def test_before_1_16_a_late_write_wins_and_the_filter_is_not_even_sent(double, connect):
    double.version = "1.15.5"
    hasty, patient = connect(write_timeout_s=0.4), connect()
    await patient.prepare(GENERATION)
    held = double.hold("Upsert")
    await failure(hasty.upsert(GENERATION, [point(0, version=1)]))
    await patient.upsert(GENERATION, [point(0, version=2)])
    await asyncio.wait_for(held.land(), DEADLINE_S)
    assert [v.version for v in await patient.scan(GENERATION, space_id=None, after=None, limit=10)] == [1]
    assert not any(request.HasField("update_filter") for request in double.sent("Upsert"))


async def test_the_version_is_asked_once_and_again_after_an_outage(double, prepared):
    double.version = "1.15.0"
    for _ in range(3):
        await prepared.upsert(GENERATION, [point(0)])
    assert len(double.sent("HealthCheck")) == 1
    await double.stop()
    await failure(search(prepared))
    double.version = "1.16.0-dev"
    await double.start()
    await eventually(lambda: prepared.upsert(GENERATION, [point(0)]))
    assert double.sent("Upsert")[-1].HasField("update_filter")


@pytest.mark.parametrize("version", ["", "unknown", "0.11.7", "1.9.2"])
async def test_a_version_that_is_old_or_unknown_gets_no_condition(version, double, prepared):
    double.version = version
    await prepared.upsert(GENERATION, [point(0)])
    assert not double.sent("Upsert")[-1].HasField("update_filter")


async def test_a_write_that_is_not_applied_yet_is_a_failure(double, prepared, monkeypatch):
    async def acknowledge(_request):
        from qdrant_client import grpc as wire

        return wire.PointsOperationResponse(result=wire.UpdateResult(status=wire.UpdateStatus.Acknowledged))

    monkeypatch.setattr(double, "_upsert", acknowledge)
    monkeypatch.setattr(double, "_delete_points", acknowledge)
    for method in ("Upsert", "DeletePoints"):
        assert (await failure(CALLS[method](prepared))).reason == UNAVAILABLE


async def test_a_vector_of_another_length_is_misconfigured(prepared):
    short = np.array([1.0, 0.0], dtype=np.float32)
    assert (await failure(prepared.upsert(GENERATION, [point(0, vector=short)]))).reason == MISCONFIGURED
    searching = prepared.search(GENERATION, 1, BUCKETS, short, Selector(), now=NOW, limit=1)
    assert (await failure(searching)).reason == MISCONFIGURED


@pytest.mark.parametrize("kind", ["dimensions", "distance", "named"])
async def test_a_collection_that_somebody_made_otherwise_is_misconfigured(kind, double, connect):
    from qdrant_client import models

    size = 5 if kind == "dimensions" else GENERATION.dimensions
    distance = models.Distance.DOT if kind == "distance" else models.Distance.COSINE
    vectors = models.VectorParams(size=size, distance=distance)
    await double.local.create_collection("lorebank-1-24", {"text": vectors} if kind == "named" else vectors)
    error = await failure(connect().prepare(GENERATION))
    assert error.reason == MISCONFIGURED
    assert "prefix" in str(error)


async def test_prefixes_keep_two_lorebanks_apart(connect):
    one, other = connect(prefix="one"), connect(prefix="other")
    await one.prepare(GENERATION)
    await one.upsert(GENERATION, [point(0)])
    assert await other.prepare(GENERATION)
    assert await other.scan(GENERATION, space_id=None, after=None, limit=10) == []


async def test_the_key_is_sent_with_every_call():
    async with QdrantDouble(api_key="kasperle") as double:
        store = QdrantStore.connect(QdrantSpec(url=double.url, api_key="kasperle"))
        await store.check()
        await store.prepare(GENERATION)
        await store.upsert(GENERATION, [point(0)])
        await store.aclose()
        assert {"kasperle"} == set(double.keys)


@pytest.mark.parametrize("key", [None, "seppel"])
async def test_a_wrong_key_is_misconfigured_and_not_told(key):
    async with QdrantDouble(api_key="kasperle") as double:
        store = QdrantStore.connect(QdrantSpec(url=double.url, api_key=key))
        error = await failure(store.check())
        await store.aclose()
    assert error.reason == MISCONFIGURED
    assert "LOREBANK_QDRANT_API_KEY" in str(error)
    assert "seppel" not in f"{error} {dict(error.metadata)} {QdrantSpec(url='http://x', api_key='seppel')!r}"


@pytest.mark.parametrize(
    "settings",
    [
        {"url": "qdrant:6334"},
        {"url": "ftp://qdrant"},
        {"url": "http://"},
        {"url": "http://qdrant:port"},
        {"url": "http://qdrant", "api_key": "key\nother: header"},
        {"url": "https://qdrant", "ca_file": "/nowhere/ca.pem"},
    ],
)
def test_what_cannot_be_used_is_refused_before_any_call(settings, tmp_path):
    if "ca_file" in settings:
        settings = {**settings, "ca_file": tmp_path / "missing.pem"}
    with pytest.raises(VectorIndexUnavailableError) as caught:
        QdrantStore.connect(QdrantSpec(**settings))
    assert caught.value.reason == MISCONFIGURED
    assert "other: header" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["timeout_s", "write_timeout_s", "payload_m", "ef_construct", "hnsw_ef", "oversampling"]
)
def test_a_number_out_of_range_is_refused(name):
    with pytest.raises(ValueError, match=name):
        QdrantSpec(url="http://qdrant", **{name: 0})


async def test_an_https_address_is_reached_by_tls_and_only_if_it_can_be_trusted(tmp_path):
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    chain = b"".join(pem.bytes() for pem in certificate.cert_chain_pems)
    credentials = grpc.ssl_server_credentials([(certificate.private_key_pem.bytes(), chain)])
    async with QdrantDouble(credentials=credentials) as double:
        trusting = QdrantStore.connect(QdrantSpec(url=double.url, api_key="k", ca_file=tmp_path / "ca.pem"))
        await trusting.check()
        distrusting = QdrantStore.connect(QdrantSpec(url=double.url))
        plain = QdrantStore.connect(QdrantSpec(url=double.url.replace("https", "http")))
        reasons = [(await failure(store.check())).reason for store in (distrusting, plain)]
        for store in (trusting, distrusting, plain):
            await store.aclose()
        assert [UNAVAILABLE] * 2 == reasons
        assert list(double.keys) == ["k"]


async def test_a_caller_that_is_cancelled_stays_cancelled(double, prepared):
    held = double.hold("Query")
    searching = asyncio.create_task(search(prepared))
    await asyncio.wait_for(held.arrived.wait(), DEADLINE_S)
    searching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await searching


async def test_one_generation_failing_leaves_the_other_alone(double, prepared):
    other = Generation(number=2, dimensions=3)
    numbers = itertools.count()
    assert (await failure(prepared.upsert(other, [point(next(numbers))]))).reason == NOT_PREPARED
    await prepared.upsert(GENERATION, [point(next(numbers))])
    assert len(double.sent("Upsert")) == 2
