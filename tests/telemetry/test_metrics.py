import json
import socket
import threading
import urllib.request
from contextlib import closing

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import format_span_id, format_trace_id
from otlp_sink import attributes_of
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from bench.service import until
from lorebank_server.config import ConfigurationError
from lorebank_server.telemetry.metrics import Metrics, configure_metrics
from lorebank_server.telemetry.process import Telemetry, configure_telemetry
from lorebank_server.telemetry.prometheus import PrometheusPage, PrometheusReader
from lorebank_server.telemetry.tracing import Tracing

pytestmark = pytest.mark.usefixtures("providers")

LOOPBACK = "127.0.0.1:0"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


def page(metrics: Metrics, accept: str = OPEN_METRICS) -> str:
    request = urllib.request.Request(f"http://127.0.0.1:{metrics.page.port}/metrics", headers={"Accept": accept})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with closing(opener.open(request, timeout=10)) as response:
        return response.read().decode()


def samples(metrics: Metrics) -> dict[str, list]:
    """What a strict parser reads from the page, by the name of the sample."""
    found: dict[str, list] = {}
    for family in text_string_to_metric_families(page(metrics)):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample)
    return found


@pytest.mark.parametrize(
    ("environ", "listen"),
    [
        ({}, None),
        ({"OTEL_METRICS_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, None),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1"}, None),
        ({"OTEL_METRICS_EXPORTER": "console,prometheus", "OTEL_SDK_DISABLED": "true"}, LOOPBACK),
    ],
)
def test_nothing_is_measured_unless_asked_for(environ, listen, monkeypatch, providers):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    configured = configure_metrics("1.2.3", listen=listen)
    assert (False, None) == (configured.enabled, configured.page)
    assert [] == providers
    configured.close()


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"])
def test_metrics_reach_the_receiver_before_they_are_closed(name, sink, monkeypatch, providers):
    monkeypatch.setenv(name, sink.endpoint)
    configured = configure_metrics("1.2.3")
    assert providers == [configured.provider]
    configured.provider.get_meter("test").create_counter("one").add(3)
    configured.close()
    (point,) = sink.metrics["one"].sum.data_points
    resource = attributes_of(sink.exports[0].resource_metrics[0].resource)
    assert 3 == point.as_int
    assert ("lorebank", "1.2.3") == (resource["service.name"], resource["service.version"])
    assert resource["service.instance.id"]
    providers.clear()


async def test_the_interval_of_the_environment_holds(sink, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.endpoint)
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "20")
    configure_metrics("1.2.3").provider.get_meter("test").create_counter("one").add(1)
    await until(lambda: "one" in sink.metrics)


def test_the_console_gets_one_json_line_an_export_on_standard_error(monkeypatch, capsys, providers):
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "console")
    configured = configure_metrics("1.2.3")
    configured.provider.get_meter("test").create_counter("one").add(1)
    configured.close()
    providers.clear()
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    (scope,) = json.loads(line)["resource_metrics"][0]["scope_metrics"]
    assert ("", "one") == (captured.out, scope["metrics"][0]["name"])


@pytest.mark.parametrize(
    ("name", "value"), [("OTEL_METRICS_EXPORTER", "statsd"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")]
)
def test_an_exporter_that_is_not_there_is_refused(name, value, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=value):
        configure_metrics("1.2.3")


def test_the_page_says_what_was_measured_by_the_names_that_prometheus_uses():
    configured = configure_metrics("1.2.3", listen=LOOPBACK)
    meter = configured.provider.get_meter("test")
    meter.create_counter("a.count", unit="{text}", description="Texts.").add(2, {"some.kind": 'q"\n'})
    meter.create_up_down_counter("a.size", unit="By").add(-3)
    meter.create_gauge("a.lag", unit="s").set(1.5)
    histogram = meter.create_histogram("a.time", unit="s", explicit_bucket_boundaries_advisory=[0.1, 1.0])
    for value in (0.1, 0.2, 5.0):
        histogram.record(value)
    found = samples(configured)
    configured.close()
    assert [(2.0, {"some_kind": 'q"\n'})] == [(each.value, each.labels) for each in found["a_count_total"]]
    assert [-3.0] == [each.value for each in found["a_size_bytes"]]
    assert [1.5] == [each.value for each in found["a_lag_seconds"]]
    buckets = {each.labels["le"]: each.value for each in found["a_time_seconds_bucket"]}
    assert {"0.1": 1.0, "1.0": 2.0, "+Inf": 3.0} == buckets
    assert [5.3] == [each.value for each in found["a_time_seconds_sum"]]
    assert "lorebank" == found["target_info"][0].labels["service_name"]


def test_the_page_is_empty_before_anything_is_measured():
    configured = configure_metrics("1.2.3", listen=LOOPBACK)
    text = page(configured)
    configured.close()
    assert "# EOF\n" == text


def test_exemplars_name_the_trace_where_the_reader_asks_for_openmetrics():
    configured = configure_metrics("1.2.3", listen=LOOPBACK)
    histogram = configured.provider.get_meter("test").create_histogram(
        "a.time", unit="s", explicit_bucket_boundaries_advisory=[0.1, 1.0]
    )
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("test")
    with tracer.start_as_current_span("kept") as span:
        histogram.record(0.1, {"kind": "x"})
    with TracerProvider(ALWAYS_OFF, shutdown_on_exit=False).get_tracer("test").start_as_current_span("dropped"):
        histogram.record(0.5, {"kind": "x"})
    assert "trace_id" not in page(configured, accept="text/plain")
    with tracer.start_as_current_span("kept too") as later:
        histogram.record(7.0, {"kind": "x"})
    found = samples(configured)["a_time_seconds_bucket"]
    configured.close()
    exemplars = {each.labels["le"]: each.exemplar for each in found if each.exemplar}
    # The first exemplar went with the first reading.
    assert ["+Inf"] == list(exemplars)
    assert 7.0 == exemplars["+Inf"].value
    context = later.get_span_context()
    assert exemplars["+Inf"].labels == {
        "trace_id": format_trace_id(context.trace_id),
        "span_id": format_span_id(context.span_id),
    }
    assert span.get_span_context().trace_id != context.trace_id


def test_an_exemplar_on_a_bound_belongs_to_the_bucket_below_it():
    configured = configure_metrics("1.2.3", listen=LOOPBACK)
    histogram = configured.provider.get_meter("test").create_histogram(
        "a.time", explicit_bucket_boundaries_advisory=[0.1, 1.0]
    )
    with TracerProvider(shutdown_on_exit=False).get_tracer("test").start_as_current_span("kept"):
        histogram.record(0.1)
    found = samples(configured)["a_time_bucket"]
    configured.close()
    assert ["0.1"] == [each.labels["le"] for each in found if each.exemplar]


def test_the_standard_variables_place_the_page(monkeypatch):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "prometheus")
    monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_HOST", "127.0.0.1")
    monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", str(port))
    configured = configure_metrics("1.2.3")
    configured.close()
    assert port == configured.page.port


def test_a_port_that_is_no_number_is_refused(monkeypatch):
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "prometheus")
    monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", "http")
    with pytest.raises(ConfigurationError, match="OTEL_EXPORTER_PROMETHEUS_PORT is 'http'"):
        configure_metrics("1.2.3")


def test_a_port_that_is_taken_is_refused_with_what_to_do():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigurationError, match="LOREBANK_METRICS_LISTEN"):
            configure_telemetry("1.2.3", metrics_listen=f"127.0.0.1:{taken.getsockname()[1]}")


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6")
def test_the_page_is_served_on_ipv6_as_well():
    shown = PrometheusPage(PrometheusReader(), "::1", 0)
    shown.close()
    assert shown.port > 0


def test_shutdown_does_not_wait_longer_than_it_is_told():
    released = threading.Event()

    class Stuck(SpanProcessor):
        def shutdown(self):
            released.wait()

    tracer_provider = TracerProvider(shutdown_on_exit=False)
    tracer_provider.add_span_processor(Stuck())
    stuck = Telemetry(tracing=Tracing(tracer_provider), metrics=Metrics(MeterProvider(shutdown_on_exit=False)))
    assert stuck.shutdown(0.01) is False
    released.set()


def test_shutdown_survives_what_fails_in_it():
    class Broken(SpanProcessor):
        def shutdown(self):
            raise ValueError("the cat")

    tracer_provider = TracerProvider(shutdown_on_exit=False)
    tracer_provider.add_span_processor(Broken())
    assert Telemetry(tracing=Tracing(tracer_provider)).shutdown(10.0) is True


def test_nothing_set_up_is_shut_down_at_once():
    nothing = Telemetry()
    assert (False, True) == (nothing.enabled, nothing.shutdown(0.0))
