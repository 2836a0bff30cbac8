"""``lorebank serve`` with metrics: on a page, over OTLP, and whether or not traces are kept."""

import json
import socket

import httpx
from otlp_sink import attributes_of, otlp_sink
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from bench.service import Service, free_port, until
from lorebank import AsyncClient

OPEN_METRICS = {"Accept": "application/openmetrics-text; version=1.0.0"}


async def read_page(port: int) -> dict[str, dict[str, float]]:
    """The page's samples with the values of all labels, by name."""
    async with httpx.AsyncClient(trust_env=False, headers=OPEN_METRICS) as client:
        text = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = "/".join(value for _, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


async def test_the_page_tells_calls_stages_pools_caches_and_the_model(service: Service, database: str):
    port = free_port()
    service.start(LOREBANK_DATABASE_URL=database, LOREBANK_METRICS_LISTEN=f"127.0.0.1:{port}")
    await service.ready()
    async with AsyncClient(service.address) as client:
        await client.store("The plants are watered by whoever is in first.")
        for _ in range(3):
            await client.find("who waters the plants?")
    shown = await read_page(port)
    assert 3.0 == shown["rpc_server_call_duration_seconds_count"]["lorebank.v1.MemoryService/Find/OK/grpc"]
    stages = shown["lorebank_stage_duration_seconds_count"]
    assert {"embed": 4.0, "write": 1.0, "dense": 3.0, "hydrate": 3.0} == {
        stage: stages[stage] for stage in ("embed", "write", "dense", "hydrate")
    }
    lookups = shown["lorebank_embedding_cache_lookups_total"]
    assert (2.0, 1.0) == (lookups["hit/query"], lookups["miss/query"])
    assert {"query": 1.0, "document": 1.0} == shown["lorebank_embedding_texts_total"]
    assert 0 < shown["lorebank_embedding_model_duration_seconds_sum"]["query"] < 60
    assert {"requests": 16.0, "vectors": 8.0} == shown["db_client_connection_max"]
    assert {"requests": 0.0, "vectors": 0.0} == shown["db_client_connection_pending_requests"]
    assert "lorebank_outbox_rows" not in shown
    assert 0 == service.stop()


async def test_a_sampler_that_keeps_no_trace_leaves_the_metrics(service: Service, database: str):
    with otlp_sink() as sink:
        service.start(
            LOREBANK_DATABASE_URL=database,
            OTEL_EXPORTER_OTLP_ENDPOINT=sink.endpoint,
            OTEL_TRACES_SAMPLER="parentbased_traceidratio",
            OTEL_TRACES_SAMPLER_ARG="0",
            OTEL_METRIC_EXPORT_INTERVAL="100",
        )
        await service.ready()
        async with AsyncClient(service.address) as client:
            await client.find("who waters the plants?")
        await until(lambda: "lorebank.stage.duration" in sink.metrics)
        service.stop()
    calls = sink.metrics["rpc.server.call.duration"].histogram.data_points
    methods = {attributes_of(point)["rpc.method"] for point in calls}
    assert "lorebank.v1.MemoryService/Find" in methods
    assert [] == [point for point in calls if point.exemplars]
    assert [] == sink.spans


async def test_what_was_measured_last_is_sent_before_it_stops(service: Service, database: str):
    with otlp_sink() as sink:
        service.start(
            LOREBANK_DATABASE_URL=database, OTEL_METRICS_EXPORTER="otlp", OTEL_EXPORTER_OTLP_ENDPOINT=sink.endpoint
        )
        await service.ready()
        async with AsyncClient(service.address) as client:
            await client.find("who waters the plants?")
        assert 0 == service.stop()
    stages = sink.metrics["lorebank.stage.duration"].histogram.data_points
    spans = {(span.trace_id, span.span_id): span.name for span in sink.spans}
    exemplars = {
        attributes_of(point)["lorebank.stage"]: spans[exemplar.trace_id, exemplar.span_id]
        for point in stages
        for exemplar in point.exemplars
    }
    assert {stage: f"lorebank.{stage}" for stage in ("embed", "plan", "rank", "hydrate")}.items() <= exemplars.items()


async def test_a_page_that_cannot_be_served_stops_the_start(service: Service, database: str):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        service.start(LOREBANK_DATABASE_URL=database, LOREBANK_METRICS_LISTEN=address, LOREBANK_LOG_FORMAT="json")
        assert 78 == service.process.wait(60)
    lines = [json.loads(line) for line in service.log.read_text().splitlines() if line.startswith("{")]
    (refusal,) = [line for line in lines if line["event"] == "refused_to_start"]
    assert address in refusal["message"]
    assert "LOREBANK_METRICS_LISTEN" in refusal["message"]
