"""With an OTLP endpoint in the environment, a call is one trace of its stages, below the caller's own span."""

from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import TracerProvider
from otlp_sink import attributes_of, otlp_sink

from bench.service import Service, until
from lorebank import AsyncClient

FIND = "lorebank.v1.MemoryService/Find"
QUERY = "who waters the plants?"
STAGES = {
    "lorebank.embed",
    "lorebank.plan",
    "lorebank.lexical",
    "lorebank.dense",
    "lorebank.confirm",
    "lorebank.rank",
    "lorebank.hydrate",
}


async def test_find_is_one_span_with_its_stages_as_children(service: Service, database):
    with otlp_sink() as sink:
        service.start(
            LOREBANK_DATABASE_URL=database, OTEL_EXPORTER_OTLP_ENDPOINT=sink.endpoint, OTEL_BSP_SCHEDULE_DELAY="50"
        )
        await service.ready()
        async with AsyncClient(service.address) as client:
            await client.store("The plants are watered by whoever is in first.")
            with TracerProvider(shutdown_on_exit=False).get_tracer("test").start_as_current_span("asking") as asking:
                await client.find(QUERY)
        await until(lambda: FIND in sink.span_names)
    (find,) = [span for span in sink.spans if span.name == FIND]
    family = [span for span in sink.spans if span.trace_id == find.trace_id and span.span_id != find.span_id]
    caller = asking.get_span_context()
    assert (caller.trace_id, caller.span_id) == tuple(map(int.from_bytes, (find.trace_id, find.parent_span_id)))
    assert Span.SPAN_KIND_SERVER == find.kind
    assert sorted(STAGES) == sorted(span.name for span in family)
    assert {find.span_id} == {span.parent_span_id for span in family}
    assert all(find.start_time_unix_nano <= span.start_time_unix_nano <= find.end_time_unix_nano for span in family)
    assert "lorebank" == attributes_of(sink.traces.resource_spans[0].resource)["service.name"]
    assert "plants" not in str(sink.traces)


async def test_stages_tell_how_much_they_worked_on(service: Service, database):
    with otlp_sink() as sink:
        service.start(LOREBANK_DATABASE_URL=database, OTEL_EXPORTER_OTLP_ENDPOINT=sink.endpoint)
        await service.ready()
        async with AsyncClient(service.address) as client:
            await client.store("The plants are watered by whoever is in first.")
            for _ in range(2):
                await client.find(QUERY, skip_usage=True)
        service.stop()
    told = {
        span.name: {item.key: item.value.int_value for item in span.attributes if item.value.HasField("int_value")}
        for span in sink.spans
    }
    assert {"lorebank.texts": 1, "lorebank.cache_hits": 1} == told["lorebank.embed"]
    assert {"lorebank.attempts": 1, "lorebank.memories": 1} == told["lorebank.write"]
    assert {"lorebank.candidates": 1} == told["lorebank.dense"]
    assert {"lorebank.candidates": 1, "lorebank.kept": 1, "lorebank.below_threshold": 0} == told["lorebank.rank"]
    assert {"lorebank.memories": 1} == told["lorebank.hydrate"]
    assert {"lorebank.hits": 1} == told[FIND]


async def test_without_an_endpoint_that_answers_it_serves_and_stops_all_the_same(service: Service, database):
    service.start(LOREBANK_DATABASE_URL=database, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1")
    await service.ready()
    async with AsyncClient(service.address) as client:
        await client.find(QUERY)
    assert 0 == service.stop()
