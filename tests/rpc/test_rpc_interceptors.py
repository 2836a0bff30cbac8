# ruff: noqa: N802 - procedures are named by the contract

import asyncio
from contextlib import asynccontextmanager

import grpc
import pytest
from rpc_doubles import bearer, failing, failure_of, started
from structlog.testing import capture_logs

from lorebank.v1 import (
    archive_pb2,
    event_pb2,
    memory_service_pb2_grpc,
    read_pb2,
    space_service_pb2_grpc,
    store_pb2,
    write_pb2,
)
from lorebank_server.domain.errors import AbortedError, NotFoundError
from lorebank_server.rpc.caller import caller
from lorebank_server.rpc.interceptors import chain
from lorebank_server.rpc.interceptors.authentication import bearer_token

SECRET = "the cat is called Ada"
READER, WRITER, ADMIN = bearer("reader"), bearer("writer"), bearer("admin")
GET = "/lorebank.v1.MemoryService/GetMemory"
STORE = "/lorebank.v1.MemoryService/Store"


class Memories(memory_service_pb2_grpc.MemoryServiceServicer):
    """GetMemory ends as its id says; Store always succeeds; the rest is as generated."""

    def __init__(self):
        self.entered = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def GetMemory(self, request, context):
        match request.id:
            case "missing":
                raise NotFoundError("Not here.", reason="MEMORY_NOT_FOUND", metadata={"id": "missing"})
            case "group":
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._lose())
            case "mixed":
                raise ExceptionGroup("mixed", [AbortedError("x", reason="X"), ValueError(SECRET)])
            case "raise":
                raise ValueError(SECRET)
            case "abort":
                await context.abort(grpc.StatusCode.DATA_LOSS, "on purpose")
            case "hang":
                self.entered.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    self.cancelled.set()
                    raise
            case "large":
                return read_pb2.GetMemoryResponse(memory={"content": "x" * 20_000})
        return read_pb2.GetMemoryResponse(memory={"owner": f"{caller().owner} {caller().role.name}"})

    async def _lose(self):
        raise AbortedError("Read again.", reason="WRITE_CONFLICT")

    async def Store(self, _request, _context):
        return store_pb2.StoreResponse()


class Spaces(space_service_pb2_grpc.SpaceServiceServicer):
    """Streams to, and from, whoever calls."""

    async def WatchEvents(self, request, _context):
        yield event_pb2.WatchEventsResponse(event={"actor": caller().owner})
        if request.after_cursor:
            raise NotFoundError("No such cursor.", reason="CURSOR_NOT_FOUND")

    async def Import(self, request_iterator, _context):
        counted = 0
        async for _ in request_iterator:
            counted += 1
        return archive_pb2.ImportResponse(unchanged=counted)


@asynccontextmanager
async def serving(authenticator, *, spaces=None, max_message_bytes=10_000):
    server = grpc.aio.server(interceptors=chain([], authenticator=authenticator, max_message_bytes=max_message_bytes))
    memories = Memories()
    memory_service_pb2_grpc.add_MemoryServiceServicer_to_server(memories, server)
    spaces = spaces or space_service_pb2_grpc.SpaceServiceServicer()
    space_service_pb2_grpc.add_SpaceServiceServicer_to_server(spaces, server)
    async with started(server, server.add_insecure_port("127.0.0.1:0")) as channel:
        yield channel, memories


@pytest.fixture
async def running(authenticator):
    async with serving(authenticator) as server:
        yield server


@pytest.fixture
def stub(running):
    return memory_service_pb2_grpc.MemoryServiceStub(running[0])


async def raw(channel, method, data, metadata=READER):
    return await channel.unary_unary(method)(data, metadata=metadata)


async def test_the_handler_knows_who_calls(stub):
    response = await stub.GetMemory(read_pb2.GetMemoryRequest(id="x", space="acme"), metadata=READER)
    assert "ann READER" == response.memory.owner
    with pytest.raises(LookupError):
        caller()


async def test_a_domain_error_becomes_its_status_with_details(stub):
    failure = await failing(stub.GetMemory(read_pb2.GetMemoryRequest(id="missing"), metadata=READER))
    assert (grpc.StatusCode.NOT_FOUND, "Not here.") == (failure.code, failure.message)
    assert ("MEMORY_NOT_FOUND", "lorebank", {"id": "missing"}) == (
        failure.info.reason,
        failure.info.domain,
        dict(failure.info.metadata),
    )


async def test_a_domain_error_out_of_a_task_group_is_no_other(stub):
    failure = await failing(stub.GetMemory(read_pb2.GetMemoryRequest(id="group"), metadata=READER))
    assert (grpc.StatusCode.ABORTED, "WRITE_CONFLICT") == (failure.code, failure.info.reason)


@pytest.mark.parametrize("way", ["raise", "mixed"])
async def test_the_unforeseen_is_told_to_the_log_and_to_nobody_else(stub, way):
    with capture_logs() as logs:
        failure = await failing(stub.GetMemory(read_pb2.GetMemoryRequest(id=way), metadata=READER))
    request_id = failure.details["RequestInfo"].request_id
    assert (grpc.StatusCode.INTERNAL, "INTERNAL") == (failure.code, failure.info.reason)
    assert request_id in failure.message
    assert SECRET not in str(failure)
    (line,) = logs
    assert ("request_failed", request_id, GET) == (line["event"], line["request_id"], line["method"])
    assert isinstance(line["exc_info"], Exception)
    if way == "raise":
        assert f"ValueError: {SECRET}" == line["error"]


async def test_what_a_handler_aborts_with_passes_through(stub):
    with capture_logs() as logs, pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.GetMemory(read_pb2.GetMemoryRequest(id="abort"), metadata=READER)
    assert (grpc.StatusCode.DATA_LOSS, "on purpose") == (caught.value.code(), caught.value.details())
    assert [] == logs


async def test_cancellation_reaches_the_handler_and_is_no_error(stub, running):
    _, memories = running
    with capture_logs() as logs:
        call = stub.GetMemory(read_pb2.GetMemoryRequest(id="hang"), metadata=READER)
        waiting = asyncio.ensure_future(call.code())
        await asyncio.wait_for(memories.entered.wait(), 10)
        call.cancel()
        await asyncio.wait_for(memories.cancelled.wait(), 10)
    assert grpc.StatusCode.CANCELLED is await waiting
    assert [] == logs


@pytest.mark.parametrize("data", [b"\x12\x02\xff\xfe", b"\x12\x09cut", b"\xff\xff\xff"])
async def test_bytes_that_are_no_message_are_the_callers_fault(running, data):
    failure = await failing(raw(running[0], GET, data))
    assert (grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_MESSAGE") == (failure.code, failure.info.reason)


async def test_empty_bytes_are_an_empty_message(running):
    assert await raw(running[0], GET, b"")


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ((), "CREDENTIAL_REQUIRED"),
        (bearer("stranger"), "CREDENTIAL_REQUIRED"),
        ((("authorization", "Basic abc"),), "CREDENTIAL_MALFORMED"),
        ((("authorization", "Bearer "),), "CREDENTIAL_MALFORMED"),
        ((*READER, *ADMIN), "CREDENTIAL_MALFORMED"),
    ],
)
async def test_nobody_calls_without_a_good_credential(running, metadata, reason):
    failure = await failing(raw(running[0], GET, b"\xff", metadata))
    assert (grpc.StatusCode.UNAUTHENTICATED, reason) == (failure.code, failure.info.reason)


def test_the_scheme_is_read_without_regard_to_case():
    assert "lb_1_2" == bearer_token((("other", "x"), ("authorization", " bearer  lb_1_2 ")))
    assert bearer_token(()) is None


async def test_the_role_is_looked_at_before_the_request(running):
    failure = await failing(raw(running[0], STORE, b"\xff\xff"))
    assert (grpc.StatusCode.PERMISSION_DENIED, "ROLE_REQUIRED") == (failure.code, failure.info.reason)


async def test_the_space_is_looked_at_before_the_fields(stub):
    answers = []
    for space in ("other", "nowhere"):
        request = store_pb2.StoreRequest(space=space, memory={"content": "\x00"}, propose=True)
        answers.append(await failing(stub.Store(request, metadata=WRITER)))
    assert [grpc.StatusCode.NOT_FOUND] * 2 == [failure.code for failure in answers]
    assert answers[0].message.replace("other", "nowhere") == answers[1].message


async def test_fields_are_checked_before_the_handler(stub):
    request = store_pb2.StoreRequest(memory={"content": "a\x00b"})
    failure = await failing(stub.Store(request, metadata=WRITER))
    assert "memory.content" == failure.details["BadRequest"].field_violations[0].field
    failure = await failing(stub.Store(store_pb2.StoreRequest(propose=True), metadata=WRITER))
    assert ("FIELD_NOT_SUPPORTED", "propose") == (failure.info.reason, failure.info.metadata["field"])


async def test_an_answer_above_the_limit_is_refused_with_details(stub):
    failure = await failing(stub.GetMemory(read_pb2.GetMemoryRequest(id="large"), metadata=READER))
    assert (grpc.StatusCode.RESOURCE_EXHAUSTED, "ANSWER_TOO_LARGE") == (failure.code, failure.info.reason)
    assert failure.details["RetryInfo"].retry_delay.seconds > 0


async def test_a_procedure_that_is_not_served_says_what_to_do_instead(stub):
    failure = await failing(stub.ForgetMemories(write_pb2.ForgetMemoriesRequest(), metadata=WRITER))
    assert (grpc.StatusCode.UNIMPLEMENTED, "PROCEDURE_NOT_SERVED") == (failure.code, failure.info.reason)
    assert "ForgetMemories" == failure.info.metadata["procedure"]
    assert "DeleteMemory" in failure.message


async def stream_failure(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in call:
            pass
    return failure_of(caught.value)


async def test_streams_that_are_not_served_say_so_too(running):
    stub = space_service_pb2_grpc.SpaceServiceStub(running[0])
    out = await stream_failure(stub.Export(archive_pb2.ExportRequest(), metadata=ADMIN))
    into = await failing(stub.Import(iter([archive_pb2.ImportRequest()]), metadata=ADMIN))
    assert [(grpc.StatusCode.UNIMPLEMENTED, "Export"), (grpc.StatusCode.UNIMPLEMENTED, "Import")] == [
        (failure.code, failure.info.metadata["procedure"]) for failure in (out, into)
    ]


async def test_who_may_not_call_does_not_learn_what_is_served(running):
    stub = space_service_pb2_grpc.SpaceServiceStub(running[0])
    stranger = await stream_failure(stub.Export(archive_pb2.ExportRequest()))
    reader = await failing(stub.Import(iter([archive_pb2.ImportRequest()]), metadata=READER))
    assert [grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED] == [stranger.code, reader.code]


async def test_streams_go_through_the_whole_chain(authenticator):
    async with serving(authenticator, spaces=Spaces()) as (channel, _):
        stub = space_service_pb2_grpc.SpaceServiceStub(channel)
        actors = [r.event.actor async for r in stub.WatchEvents(event_pb2.WatchEventsRequest(), metadata=READER)]
        broken = await stream_failure(stub.WatchEvents(event_pb2.WatchEventsRequest(after_cursor="x"), metadata=READER))
        records = [archive_pb2.ImportRequest(space="acme"), archive_pb2.ImportRequest()]
        imported = await stub.Import(iter(records), metadata=ADMIN)
        send = channel.stream_unary("/lorebank.v1.SpaceService/Import")
        malformed = await failing(send(iter([b"", b"\xff"]), metadata=ADMIN))
    assert ["ann"] == actors
    assert "CURSOR_NOT_FOUND" == broken.info.reason
    assert 2 == imported.unchanged
    assert "MALFORMED_MESSAGE" == malformed.info.reason
