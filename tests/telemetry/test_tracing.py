import asyncio
import json

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import StatusCode
from otlp_sink import attributes_of

from lorebank_server.config import ConfigurationError
from lorebank_server.ports import stages
from lorebank_server.ports.stages import note, stage
from lorebank_server.telemetry.tracing import configure_tracing

pytestmark = pytest.mark.usefixtures("providers")


@pytest.fixture
def exported(monkeypatch):
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(stages, "_tracer", lambda: provider.get_tracer("test"))
    return exporter.get_finished_spans


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
    configured.close()
    assert providers == []


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
def test_spans_reach_the_receiver_before_it_is_closed(name, sink, monkeypatch, providers):
    monkeypatch.setenv(name, sink.endpoint)
    configured = configure_tracing("1.2.3")
    assert providers == [configured.provider]
    configured.provider.get_tracer("test").start_span("one").end()
    configured.close()
    (resource_spans,) = sink.traces.resource_spans
    attributes = attributes_of(resource_spans.resource)
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
    configured.close()
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


def test_a_stage_is_measured_whether_or_not_its_trace_is_kept(exported, measured, monkeypatch):
    histogram = measured.provider.get_meter("test").create_histogram(stages.STAGE_DURATION)
    monkeypatch.setattr(stages, "_duration", lambda: histogram)
    with stage("rank"):
        pass
    with TracerProvider(ALWAYS_OFF, shutdown_on_exit=False).get_tracer("test").start_as_current_span("dropped"):
        monkeypatch.setattr(stages, "_tracer", trace.NoOpTracer)
        with stage("rank"):
            pass
    (point,) = measured.points("lorebank.stage.duration")
    (rank,) = exported()
    assert {"lorebank.stage": "rank"} == dict(point.attributes)
    assert 2 == point.count
    assert [rank.context.span_id] == [exemplar.span_id for exemplar in point.exemplars]


def test_a_failed_stage_is_measured_apart_and_a_cancelled_one_not_at_all(measured, monkeypatch):
    histogram = measured.provider.get_meter("test").create_histogram(stages.STAGE_DURATION)
    monkeypatch.setattr(stages, "_duration", lambda: histogram)
    with pytest.raises(ValueError, match="the cat"), stage("embed"):
        raise ValueError("the cat")
    with pytest.raises(asyncio.CancelledError), stage("dense"):
        raise asyncio.CancelledError
    (point,) = measured.points("lorebank.stage.duration")
    assert {"lorebank.stage": "embed", "error.type": "ValueError"} == dict(point.attributes)


def test_what_is_noted_goes_to_the_span_around(exported):
    note(lost=1)
    with stage("rank"):
        note(kept=3, degraded=False)
    (rank,) = exported()
    assert {"lorebank.kept": 3, "lorebank.degraded": False} == dict(rank.attributes)


def test_a_stage_without_tracing_records_nothing():
    with stage("embed", texts=1) as span:
        assert span.is_recording() is False
