import json
import threading
from concurrent import futures

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as collector
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import StatusCode

from lorebank_server.config import ConfigurationError
from lorebank_server.ports import stages
from lorebank_server.ports.stages import stage
from lorebank_server.telemetry import tracing
from lorebank_server.telemetry.tracing import Tracing, configure_tracing


@pytest.fixture(autouse=True)
def providers(monkeypatch):
    """The providers that would have become the process's own, which can be set only once."""
    for name in list(tracing.os.environ):
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)
    found = []
    monkeypatch.setattr(tracing.trace, "set_tracer_provider", found.append)
    yield found
    for provider in found:
        provider.shutdown()


@pytest.fixture
def exported(monkeypatch):
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(stages, "_tracer", lambda: provider.get_tracer("test"))
    return exporter.get_finished_spans


@pytest.fixture
def receiver():
    requests = []

    def export(request, _context):
        requests.append(request)
        return collector.ExportTraceServiceResponse()

    handler = grpc.unary_unary_rpc_method_handler(
        export,
        request_deserializer=collector.ExportTraceServiceRequest.FromString,
        response_serializer=collector.ExportTraceServiceResponse.SerializeToString,
    )
    server = grpc.server(futures.ThreadPoolExecutor(1))
    name = "opentelemetry.proto.collector.trace.v1.TraceService"
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, {"Export": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"http://127.0.0.1:{port}", requests
    server.stop(None).wait()


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
        {"OTEL_TRACES_EXPORTER": "console", "OTEL_SDK_DISABLED": "true"},
    ],
)
def test_nothing_is_set_up_unless_asked_for(environ, monkeypatch, providers):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    configured = configure_tracing("1.2.3")
    assert configured.enabled is False
    assert configured.shutdown(0.0) is True
    assert providers == []


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
def test_spans_reach_the_receiver_by_the_end_of_shutdown(name, receiver, monkeypatch, providers):
    endpoint, requests = receiver
    monkeypatch.setenv(name, endpoint)
    configured = configure_tracing("1.2.3")
    assert providers == [configured.provider]
    configured.provider.get_tracer("test").start_span("one").end()
    assert configured.shutdown(10.0) is True
    (resource_spans,) = requests[0].resource_spans
    attributes = {item.key: item.value.string_value for item in resource_spans.resource.attributes}
    assert attributes["service.name"] == "lorebank"
    assert attributes["service.version"] == "1.2.3"
    assert [span.name for span in resource_spans.scope_spans[0].spans] == ["one"]


def test_the_environment_names_the_service_and_the_sampler(monkeypatch):
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "lore-east")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.version=9,deployment.environment.name=test")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    provider = configure_tracing("1.2.3").provider
    assert provider.resource.attributes["service.name"] == "lore-east"
    assert provider.resource.attributes["service.version"] == "9"
    assert provider.sampler is ALWAYS_OFF


def test_the_console_gets_one_json_line_a_span_on_standard_error(monkeypatch, capsys):
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    configured = configure_tracing("1.2.3")
    configured.provider.get_tracer("test").start_span("one").end()
    assert configured.shutdown(10.0) is True
    captured = capsys.readouterr()
    assert captured.out == ""
    assert json.loads(captured.err)["name"] == "one"


@pytest.mark.parametrize(
    ("name", "value"), [("OTEL_TRACES_EXPORTER", "zipkin"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")]
)
def test_an_exporter_that_is_not_there_is_refused(name, value, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=value):
        configure_tracing("1.2.3")


def test_shutdown_does_not_wait_longer_than_it_is_told():
    released = threading.Event()

    class Stuck(SpanProcessor):
        def shutdown(self):
            released.wait()

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Stuck())
    assert Tracing(provider).shutdown(0.01) is False
    released.set()


def test_a_stage_is_a_child_of_the_span_around_it(exported):
    with stage("rank", candidates=12) as outer, stage("fuse"):
        outer.set_attribute("lorebank.kept", 3)
    fuse, rank = exported()
    assert (fuse.name, rank.name) == ("lorebank.fuse", "lorebank.rank")
    assert fuse.parent.span_id == rank.context.span_id
    assert dict(rank.attributes) == {"lorebank.candidates": 12, "lorebank.kept": 3}


def test_a_failed_stage_records_the_class_and_never_the_message(exported):
    with pytest.raises(ValueError, match="the cat"), stage("embed"):
        raise ValueError("the cat")
    (span,) = exported()
    assert span.status.status_code is StatusCode.ERROR
    assert dict(span.attributes) == {"error.type": "ValueError"}
    assert "the cat" not in span.to_json()


def test_a_stage_without_tracing_records_nothing():
    with stage("embed", texts=1) as span:
        assert span.is_recording() is False
