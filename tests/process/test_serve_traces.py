"""With an OTLP endpoint in the environment, a call is one trace of its stages."""

from collections.abc import AsyncIterator

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from bench.service import Service, until
from lorebank import AsyncClient

QUERY = "who waters the plants?"
STAGES = {
    "lorebank.embed",
    "lorebank.lexical",
    "lorebank.dense",
    "lorebank.confirm",
    "lorebank.rank",
    "lorebank.hydrate",
}


class Receiver(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.port = 0
        self.sent = trace_service_pb2.ExportTraceServiceRequest()

    async def Export(self, request, context):  # noqa: N802, ARG002 - as the contract names it
        self.sent.MergeFrom(request)
        return trace_service_pb2.ExportTraceServiceResponse()

    def spans(self) -> list[Span]:
        return [span for resource in self.sent.resource_spans for scope in resource.scope_spans for span in scope.spans]

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans() if span.name == name]


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiving, server = Receiver(), grpc.aio.server()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(receiving, server)
    receiving.port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield receiving
    await server.stop(None)


async def test_find_is_one_span_with_its_stages_as_children(service: Service, receiver, database):
    service.start(
        LOREBANK_DATABASE_URL=database,
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{receiver.port}",
        OTEL_BSP_SCHEDULE_DELAY="50",
    )
    await service.ready()
    async with AsyncClient(service.address) as client:
        await client.store("The plants are watered by whoever is in first.")
        await client.find(QUERY)
    await until(lambda: bool(receiver.named("lorebank.v1.MemoryService/Find")))
    (find,) = receiver.named("lorebank.v1.MemoryService/Find")
    family = [span for span in receiver.spans() if span.trace_id == find.trace_id and span.span_id != find.span_id]
    resource = {item.key: item.value.string_value for item in receiver.sent.resource_spans[0].resource.attributes}
    assert b"" == find.parent_span_id
    assert Span.SPAN_KIND_SERVER == find.kind
    assert sorted(STAGES) == sorted(span.name for span in family)
    assert {find.span_id} == {span.parent_span_id for span in family}
    assert all(find.start_time_unix_nano <= span.start_time_unix_nano <= find.end_time_unix_nano for span in family)
    assert "lorebank" == resource["service.name"]
    assert "plants" not in str(receiver.sent)


async def test_without_an_endpoint_that_answers_it_serves_and_stops_all_the_same(service: Service, database):
    service.start(LOREBANK_DATABASE_URL=database, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1")
    await service.ready()
    async with AsyncClient(service.address) as client:
        await client.find(QUERY)
    assert 0 == service.stop()
