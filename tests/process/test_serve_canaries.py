"""Whatever callers send, and whatever the model makes of it, stays out of spans, metrics, exemplars, pages and logs."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote

import asyncpg
import grpc
import httpx
import numpy as np
import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from otlp_sink import OtlpSink, otlp_sink

from bench.service import Service, free_port
from lorebank import AsyncClient, LorebankError, Memory
from lorebank.v1.find_pb2 import FindRequest

CANARY = "zanzibar"
"""Part of every text that is sent in this test; what follows it names the field."""

ENDPOINT_KEY = f"sk-{CANARY}-endpoint"
FAILING = f"{CANARY}-that-cannot-be-embedded"

MEMORY = {
    "content": f"The {CANARY}-content fact that everybody ought to know.",
    "title": f"{CANARY}-title",
    "keywords": [f"{CANARY}-keyword"],
    "subject": f"{CANARY}-subject",
    "tags": [f"{CANARY}-tag"],
    "key": f"{CANARY}-key",
    "attributes": {f"{CANARY}-name": f"{CANARY}-value"},
    "card": {
        "summary": f"{CANARY}-summary",
        "whenToUse": [f"{CANARY}-when"],
        "howToApply": [f"{CANARY}-how"],
        "gotchas": [f"{CANARY}-gotcha"],
        "evidence": [{"text": f"{CANARY}-evidence", "uri": f"https://{CANARY}.example/uri"}],
        "antiPattern": f"{CANARY}-anti-pattern",
        "signals": [f"{CANARY}-signal"],
        "invariants": [f"{CANARY}-invariant"],
    },
    "provenance": {
        "agent": f"{CANARY}-agent",
        "run": f"{CANARY}-run",
        "conversation": f"{CANARY}-conversation",
        "sources": [f"https://{CANARY}.example/source"],
    },
}


@dataclass
class Endpoint:
    """An embedding endpoint whose vectors are told by their components."""

    url: str = ""
    vectors: list[np.ndarray] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def answer(self, texts: list[str]) -> tuple[int, dict[str, Any]]:
        if any(FAILING in text for text in texts):
            return 500, {"error": f"cannot embed {texts}"}
        made = [self._vector(text) for text in texts]
        return 200, {"data": [{"index": index, "embedding": vector.tolist()} for index, vector in enumerate(made)]}

    def _vector(self, text: str) -> np.ndarray:
        digest = np.frombuffer(hashlib.sha256(text.encode()).digest(), dtype=np.uint16)
        vector = digest.astype(np.float64) - 32768.0
        self.vectors.append(vector / np.linalg.norm(vector))
        return self.vectors[-1]


@contextmanager
def embedding_endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            endpoint.headers.append({name.lower(): value for name, value in self.headers.items()})
            status, answer = endpoint.answer(request["input"])
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    endpoint.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def test_nothing_that_a_caller_sent_is_told_to_anyone(service: Service, database: str):
    port = free_port()
    with otlp_sink() as sink, embedding_endpoint() as endpoint:
        service.start(
            LOREBANK_DATABASE_URL=database,
            LOREBANK_LOG_LEVEL="debug",
            LOREBANK_METRICS_LISTEN=f"127.0.0.1:{port}",
            LOREBANK_EMBEDDING_URL=endpoint.url,
            LOREBANK_EMBEDDING_MODEL="tiny",
            LOREBANK_EMBEDDING_API_KEY=ENDPOINT_KEY,
            OTEL_EXPORTER_OTLP_ENDPOINT=sink.endpoint,
            NO_PROXY="127.0.0.1",
        )
        await service.ready()
        secrets = await use(service.address)
        await misuse(service.address, database, secrets[0])
        told = {accept: await page(port, accept) for accept in ("application/openmetrics-text", "text/plain")}
        assert 0 == service.stop()
    told["log"] = service.log.read_bytes()
    told["otlp"] = b"".join(sink.bodies)
    assert_everything_was_tried(sink, endpoint, told)
    needles = [CANARY.encode(), *(secret.encode() for secret in secrets)]
    for place, text in told.items():
        assert [] == [needle for needle in needles if needle in text.lower() or needle in text], place
        assert [] == [vector for vector in endpoint.vectors if is_in(vector, text)], place
    assert {"string_value", "int_value", "bool_value"} == {value.WhichOneof("value") for value in values(sink)}
    assert [] == [value for value in values(sink) if len(value.string_value) > 100]


async def use(address: str) -> list[str]:
    """Every call that is served, with words in every field that takes some; returns the secrets that were made."""
    async with AsyncClient(address) as client:
        key = await client.keys.create(f"{CANARY}-owner", roles=["admin"], display_name=f"{CANARY}-display")
    metadata = (("baggage", f"pet={CANARY}"), ("x-note", f"{CANARY}-note"))
    async with (
        AsyncClient(address, api_key=key.secret) as client,
        grpc.aio.insecure_channel(address, options=[("grpc.primary_user_agent", f"{CANARY}-agent")]) as channel,
    ):
        first = (await client.store(memory=ParseDict(MEMORY, Memory()))).memory
        second = (await client.store(f"Another {CANARY} fact.", links=[("relates_to", first.id)])).memory
        async for _ in client.store_many([Memory(content=f"The {CANARY} fact number {number}.") for number in "12"]):
            pass
        for _ in range(2):
            await client.find(f"who knows {CANARY}?", subjects=[f"{CANARY}-subject"], tags_any=[f"{CANARY}-tag"])
        await client.find(f"who knows {CANARY}?")
        await client.find(similar_to=first.id)
        await client.update(first.id, title=f"{CANARY} anew", content=f"The {CANARY} words.", reason=f"{CANARY}-why")
        await client.upvote(first.id, run=f"{CANARY}-run", reason=f"{CANARY}-because")
        await client.graph([first.id, second.id])
        third = (await client.supersede(second.id, f"A newer {CANARY} fact.", reason=f"{CANARY}-reason")).memory
        await client.delete(third.id)
        await client.undelete(third.id)
        await client.get(key=f"{CANARY}-key")
        [revision async for revision in client.history(first.id)]
        [memory async for memory in client.list(tags_any=[f"{CANARY}-tag"])]
        [each async for each in client.keys.list()]
        other = await client.keys.create(f"{CANARY}-second", roles=["reader"])
        await client.keys.revoke(other.key.id)
        find = channel.unary_unary("/lorebank.v1.MemoryService/Find")
        credential = ("authorization", f"Bearer {key.secret}")
        await find(FindRequest(query=f"{CANARY} raw").SerializeToString(), metadata=(credential, *metadata))
    return [key.secret, other.secret]


async def misuse(address: str, database: str, secret: str) -> None:
    """Calls that fail, in as many ways as there are."""
    async with AsyncClient(address) as nobody, AsyncClient(address, api_key=f"lb_{CANARY}_key") as liar:
        await refused(nobody.find(f"who knows {CANARY}?"), liar.find(f"who knows {CANARY}?"))
    connection = await asyncpg.connect(database)
    async with AsyncClient(address, api_key=secret) as client:
        await client.store(f"A fact of {FAILING}.")
        await client.find(f"who knows {FAILING}?")
        await refused(
            client.store(f"Another {CANARY} fact.", key=f"{CANARY}-key"),
            client.store(f"A {CANARY} \x00 fact."),
            client.store(f"A {CANARY} fact.", category=CANARY),
            client.store(f"A {CANARY} fact.", links=[(CANARY, CANARY)]),
            client.store(f"A {CANARY} fact.", request_id=CANARY),
            client.find(f"{CANARY} " * 5000),
            client.find(similar_to=CANARY),
            client.get(CANARY),
            client.supersede(CANARY, f"The {CANARY} fact anew."),
            client.upvote(CANARY, run=CANARY, reason=f"{CANARY} helped"),
        )
        await connection.execute("alter table memories add constraint broken check (false) not valid")
        await refused(client.store(f"A {CANARY} fact that breaks."))
    await connection.close()
    async with grpc.aio.insecure_channel(address) as channel:
        for method in ("Find", quote(CANARY)):
            with pytest.raises(grpc.aio.AioRpcError):
                await channel.unary_unary(f"/lorebank.v1.MemoryService/{method}")(CANARY.encode(), timeout=5.0)
        with suppress(grpc.aio.AioRpcError):
            await channel.unary_unary("/lorebank.v1.MemoryService/Find")(CANARY.encode(), timeout=0.001)


async def refused(*calls: Any) -> None:
    for call in calls:
        with pytest.raises(LorebankError):
            await call


async def page(port: int, accept: str) -> bytes:
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.get(f"http://127.0.0.1:{port}/metrics", headers={"Accept": accept})
    return answer.read()


def is_in(vector: np.ndarray, text: bytes) -> bool:
    """Whether a vector was printed or sent; one component alone may look like a duration."""
    printed = sum(f"{abs(component):.7f}"[:-1].encode() in text for component in vector)
    return printed >= 3 or any(
        vector.astype(kind)[:4].tobytes() in text for kind in (np.float64, np.float32, np.float16)
    )


def values(sink: OtlpSink) -> list[AnyValue]:
    """All values of attributes of spans, points and exemplars."""
    holders: list[Any] = list(sink.spans)
    for metric in sink.metrics.values():
        data = getattr(metric, metric.WhichOneof("data"))
        holders += data.data_points
    found = [item.value for holder in holders for item in holder.attributes]
    exemplars = [exemplar for holder in holders for exemplar in getattr(holder, "exemplars", ())]
    return found + [item.value for exemplar in exemplars for item in exemplar.filtered_attributes]


def assert_everything_was_tried(sink: OtlpSink, endpoint: Endpoint, told: dict[str, bytes]) -> None:
    """A test of what must not be found has to look where something is."""
    methods = {"Store", "BatchStore", "Find", "UpdateMemory", "Supersede", "Vote", "Graph", "ListMemories"}
    stages = {"embed", "plan", "lexical", "dense", "confirm", "rank", "hydrate", "write"}
    assert {f"lorebank.v1.MemoryService/{method}" for method in methods} <= sink.span_names
    assert {f"lorebank.{stage}" for stage in stages} <= sink.span_names
    codes = {item.value.string_value for span in sink.spans for item in span.attributes if "status_code" in item.key}
    assert {"OK", "UNAUTHENTICATED", "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "INTERNAL"} <= codes
    assert any(point.exemplars for point in sink.metrics["lorebank.stage.duration"].histogram.data_points)
    assert b"trace_id" in told["application/openmetrics-text"]
    assert b"rpc_server_call_duration_seconds" in told["text/plain"]
    assert b"request_failed" in told["log"]
    spans = {span.trace_id.hex(): span for span in sink.spans}
    traced = [each["traceparent"] for each in endpoint.headers if "traceparent" in each]
    assert traced
    assert all(parent.split("-")[1] in spans for parent in traced)
    assert [] == [each for each in endpoint.headers if "baggage" in each]
