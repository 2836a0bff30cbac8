import subprocess
import sys

from opentelemetry import baggage, context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import format_span_id, format_trace_id

from lorebank import AsyncClient

_WITHOUT_OPENTELEMETRY = """
import sys
import lorebank
from lorebank._trace_context import trace_metadata

assert trace_metadata() == ()
assert not [name for name in sys.modules if name.split(".")[0] == "opentelemetry"]
"""


async def test_a_call_within_a_span_carries_its_trace_and_no_baggage(script):
    token = context.attach(baggage.set_baggage("pet", "cat"))
    try:
        with TracerProvider(shutdown_on_exit=False).get_tracer("test").start_as_current_span("asking") as span:
            async with AsyncClient(script.address, api_key="secret") as client:
                await client.store("A fact.")
    finally:
        context.detach(token)
    asked = span.get_span_context()
    (metadata,) = script.metadata
    assert metadata["traceparent"].startswith(f"00-{format_trace_id(asked.trace_id)}-{format_span_id(asked.span_id)}-")
    assert "Bearer secret" == metadata["authorization"]
    assert "baggage" not in metadata


async def test_a_call_outside_of_a_span_carries_no_trace(script):
    async with AsyncClient(script.address) as client:
        await client.store("A fact.")
    assert "traceparent" not in script.metadata[0]


def test_a_program_without_opentelemetry_does_not_load_it():
    subprocess.run([sys.executable, "-c", _WITHOUT_OPENTELEMETRY], check=True, timeout=60)
