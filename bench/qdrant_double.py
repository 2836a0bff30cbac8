"""A server that speaks Qdrant's gRPC protocol, backed by the client library's local mode.

It answers like the server does, without an index: for tests, and for seeing what happens when Qdrant is slow, fails,
hangs, is killed, or carries out a write after its caller gave up. As a process of its own:

    python -m bench.qdrant_double --port 6334 --path /tmp/qdrant

which prints its address once it serves, keeps its points in the folder through any kill, and is stopped like Qdrant
would be (SIGSTOP makes it hang). It knows the calls that Lorebank makes and answers UNIMPLEMENTED to all others.
"""

import argparse
import asyncio
import signal
import warnings
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, Self

import grpc
from google.protobuf.message import Message
from qdrant_client import grpc as wire
from qdrant_client.conversions.conversion import GrpcToRest, RestToGrpc
from qdrant_client.local.async_qdrant_local import AsyncQdrantLocal

Handler = Callable[[Any], Awaitable[Message]]

_REMEMBERED_REQUESTS: Final = 1000


class RefusedError(Exception):
    """A call that is answered with a status."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


class HeldCall:
    """A call that its caller waits for in vain until ``land``."""

    def __init__(self, double: "QdrantDouble", method: str) -> None:
        self.arrived = asyncio.Event()
        self._double = double
        self._method = method
        self._request: Message | None = None
        self._answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

    async def land(self) -> None:
        """Carry the call out, whether anyone still waits for its answer or not."""
        await self.arrived.wait()
        answer = await self._double.apply(self._method, self._request)
        if not self._answer.done():
            self._answer.set_result(answer)

    async def answer(self, request: Message) -> Message:
        self._request = request
        self.arrived.set()
        return await asyncio.shield(self._answer)


class QdrantDouble:
    """The server; ``async with`` starts and stops it.

    Attributes:
        delay_s: How long every call waits before anything else happens to it, in seconds.
        version: What it says it is. Below 1.16 it ignores ``update_filter``, as such a server does.
        requests: The latest calls, oldest first: the method's short name and the message.
        keys: The API keys that came with them.
    """

    def __init__(
        self,
        *,
        version: str = "1.19.1",
        path: Path | None = None,
        api_key: str | None = None,
        credentials: grpc.ServerCredentials | None = None,
        delay_s: float = 0.0,
    ) -> None:
        self.delay_s = delay_s
        self.version = version
        self.requests: deque[tuple[str, Any]] = deque(maxlen=_REMEMBERED_REQUESTS)
        self.keys: deque[str | None] = deque(maxlen=_REMEMBERED_REQUESTS)
        self.port = 0
        self.local = AsyncQdrantLocal(":memory:" if path is None else str(path))
        self._credentials = credentials
        self._api_key = api_key
        self._server: grpc.aio.Server | None = None
        self._indexes: dict[str, dict[str, wire.PayloadSchemaInfo]] = {}
        self._failures: dict[str, RefusedError] = {}
        self._hanging: dict[str, asyncio.Event] = {}
        self._held: dict[str, HeldCall] = {}
        self._forgo_durability()

    @property
    def url(self) -> str:
        return f"{'http' if self._credentials is None else 'https'}://localhost:{self.port}"

    async def start(self, port: int = 0, host: str = "127.0.0.1") -> None:
        """Listen; after ``stop``, on the same port again unless told otherwise."""
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", -1)])
        server.add_generic_rpc_handlers(self._services())
        address = f"{host}:{port or self.port}"
        if self._credentials is None:
            self.port = server.add_insecure_port(address)
        else:
            self.port = server.add_secure_port(address, self._credentials)
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """Drop every connection at once, as a kill does; what was written stays."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        await self.local.close()

    def fail(self, method: str, code: grpc.StatusCode, details: str = "") -> None:
        """Answer a method with this status until ``heal``, without doing anything."""
        self._failures[method] = RefusedError(code, details)

    def hang(self, method: str) -> None:
        """Let a method's calls wait until ``heal``, which lets those go on that still have a caller."""
        self._hanging[method] = asyncio.Event()

    def hold(self, method: str) -> HeldCall:
        """Keep the next call of a method, and no other, until it is told to land."""
        held = self._held[method] = HeldCall(self, method)
        return held

    def heal(self) -> None:
        """Be well again."""
        self.delay_s = 0.0
        self._failures.clear()
        for event in self._hanging.values():
            event.set()
        self._hanging.clear()

    def sent(self, method: str) -> list[Any]:
        """The latest messages of one method, oldest first."""
        return [request for name, request in self.requests if name == method]

    async def apply(self, method: str, request: Any) -> Message:
        """Do what a call asks for.

        Raises:
            RefusedError: The request cannot be done.
        """
        with warnings.catch_warnings():
            # Local mode tells that it has no indexes. Nothing in it gives way to other tasks meanwhile.
            warnings.simplefilter("ignore", UserWarning)
            try:
                return await self._handlers()[method](request)
            except ValueError as error:
                raise RefusedError(_status(str(error)), str(error)) from error

    # ── Calls ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _handlers(self) -> dict[str, Handler]:
        return {
            "HealthCheck": self._health_check,
            "ListCollections": self._list_collections,
            "CollectionExists": self._collection_exists,
            "CreateCollection": self._create_collection,
            "GetCollection": self._get_collection,
            "DeleteCollection": self._delete_collection,
            "CreateFieldIndex": self._create_field_index,
            "Upsert": self._upsert,
            "DeletePoints": self._delete_points,
            "Query": self._query,
            "Scroll": self._scroll,
            "Count": self._count,
        }

    async def _health_check(self, _: wire.HealthCheckRequest) -> Message:
        return wire.HealthCheckReply(title="qdrant - vector search engine", version=self.version)

    async def _list_collections(self, _: wire.ListCollectionsRequest) -> Message:
        found = await self.local.get_collections()
        return wire.ListCollectionsResponse(
            collections=[wire.CollectionDescription(name=collection.name) for collection in found.collections]
        )

    async def _collection_exists(self, request: wire.CollectionExistsRequest) -> Message:
        exists = await self.local.collection_exists(request.collection_name)
        return wire.CollectionExistsResponse(result=wire.CollectionExists(exists=exists))

    async def _create_collection(self, request: wire.CreateCollection) -> Message:
        vectors: Any = GrpcToRest.convert_vectors_config(request.vectors_config)
        await self.local.create_collection(request.collection_name, vectors_config=vectors)
        self._indexes.pop(request.collection_name, None)
        self._forgo_durability()
        return wire.CollectionOperationResponse(result=True)

    async def _get_collection(self, request: wire.GetCollectionInfoRequest) -> Message:
        info = RestToGrpc.convert_collection_info(await self.local.get_collection(request.collection_name))
        for field, index in self._indexes.get(request.collection_name, {}).items():
            info.payload_schema[field].CopyFrom(index)
        return wire.GetCollectionInfoResponse(result=info)

    async def _delete_collection(self, request: wire.DeleteCollection) -> Message:
        existed = await self.local.collection_exists(request.collection_name)
        await self.local.delete_collection(request.collection_name)
        return wire.CollectionOperationResponse(result=existed)

    async def _create_field_index(self, request: wire.CreateFieldIndexCollection) -> Message:
        await self.local.get_collection(request.collection_name)
        # The two enums differ by the unknown type, which only the schema's has.
        data_type: Any = request.field_type + 1
        index = wire.PayloadSchemaInfo(data_type=data_type, params=request.field_index_params)
        self._indexes.setdefault(request.collection_name, {})[request.field_name] = index
        return _updated()

    async def _upsert(self, request: wire.UpsertPoints) -> Message:
        conditional = request.HasField("update_filter") and _release(self.version) >= (1, 16)
        await self.local.upsert(
            request.collection_name,
            points=[GrpcToRest.convert_point_struct(point) for point in request.points],
            update_filter=GrpcToRest.convert_filter(request.update_filter) if conditional else None,
        )
        return _updated()

    async def _delete_points(self, request: wire.DeletePoints) -> Message:
        await self.local.delete(request.collection_name, GrpcToRest.convert_points_selector(request.points))
        return _updated()

    async def _query(self, request: wire.QueryPoints) -> Message:
        found = await self.local.query_points(
            request.collection_name,
            query=GrpcToRest.convert_query(request.query),
            query_filter=GrpcToRest.convert_filter(request.filter) if request.HasField("filter") else None,
            limit=request.limit,
            with_payload=GrpcToRest.convert_with_payload_selector(request.with_payload),
        )
        return wire.QueryResponse(
            result=[
                wire.ScoredPoint(
                    id=wire.PointId(uuid=str(point.id)),
                    payload=RestToGrpc.convert_payload(point.payload or {}),
                    score=point.score,
                )
                for point in found.points
            ]
        )

    async def _scroll(self, request: wire.ScrollPoints) -> Message:
        records, following = await self.local.scroll(
            request.collection_name,
            scroll_filter=GrpcToRest.convert_filter(request.filter) if request.HasField("filter") else None,
            offset=GrpcToRest.convert_point_id(request.offset) if request.HasField("offset") else None,
            limit=request.limit,
            with_payload=GrpcToRest.convert_with_payload_selector(request.with_payload),
        )
        return wire.ScrollResponse(
            result=[
                wire.RetrievedPoint(
                    id=wire.PointId(uuid=str(record.id)), payload=RestToGrpc.convert_payload(record.payload or {})
                )
                for record in records
            ],
            next_page_offset=None if following is None else wire.PointId(uuid=str(following)),
        )

    async def _count(self, request: wire.CountPoints) -> Message:
        counted = await self.local.count(
            request.collection_name,
            count_filter=GrpcToRest.convert_filter(request.filter) if request.HasField("filter") else None,
        )
        return wire.CountResponse(result=wire.CountResult(count=counted.count))

    # ── The server around them ─────────────────────────────────────────────────────────────────────────────────

    def _services(self) -> list[grpc.GenericRpcHandler]:
        return [
            grpc.method_handlers_generic_handler(
                service, {path: self._method(name, request) for path, (name, request) in methods.items()}
            )
            for service, methods in _METHODS.items()
        ]

    def _method(self, name: str, request_type: type[Message]) -> "grpc.RpcMethodHandler[Any, Any]":
        async def serve(request: Message, context: "grpc.aio.ServicerContext[Any, Any]") -> Message:
            try:
                return await self._serve(name, request, dict(context.invocation_metadata() or ()))
            except RefusedError as error:
                await context.abort(error.code, error.details)
                raise

        return grpc.unary_unary_rpc_method_handler(
            serve,
            request_deserializer=request_type.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )

    async def _serve(self, method: str, request: Message, metadata: dict[str, Any]) -> Message:
        self.requests.append((method, request))
        self.keys.append(metadata.get("api-key"))
        if self._api_key not in {None, metadata.get("api-key")} and method != "HealthCheck":
            raise RefusedError(grpc.StatusCode.UNAUTHENTICATED, "Invalid API key or JWT")
        if method in self._held:
            return await self._held.pop(method).answer(request)
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        if method in self._hanging:
            await self._hanging[method].wait()
        if method in self._failures:
            raise self._failures[method]
        return await self.apply(method, request)

    def _forgo_durability(self) -> None:
        # Local mode commits point by point. A kill loses nothing that the kernel has; a power cut is not tested.
        for collection in self.local.collections.values():
            if collection.storage is not None:
                collection.storage.storage.execute("pragma synchronous = off")


_METHODS: Final[dict[str, dict[str, tuple[str, type[Message]]]]] = {
    "qdrant.Qdrant": {"HealthCheck": ("HealthCheck", wire.HealthCheckRequest)},
    "qdrant.Collections": {
        "List": ("ListCollections", wire.ListCollectionsRequest),
        "CollectionExists": ("CollectionExists", wire.CollectionExistsRequest),
        "Create": ("CreateCollection", wire.CreateCollection),
        "Get": ("GetCollection", wire.GetCollectionInfoRequest),
        "Delete": ("DeleteCollection", wire.DeleteCollection),
    },
    "qdrant.Points": {
        "CreateFieldIndex": ("CreateFieldIndex", wire.CreateFieldIndexCollection),
        "Upsert": ("Upsert", wire.UpsertPoints),
        "Delete": ("DeletePoints", wire.DeletePoints),
        "Query": ("Query", wire.QueryPoints),
        "Scroll": ("Scroll", wire.ScrollPoints),
        "Count": ("Count", wire.CountPoints),
    },
}


def _updated() -> wire.PointsOperationResponse:
    return wire.PointsOperationResponse(result=wire.UpdateResult(operation_id=0, status=wire.UpdateStatus.Completed))


def _status(message: str) -> grpc.StatusCode:
    if message.endswith(" not found"):
        return grpc.StatusCode.NOT_FOUND
    if message.endswith(" already exists"):
        return grpc.StatusCode.ALREADY_EXISTS
    return grpc.StatusCode.INVALID_ARGUMENT


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


async def _serve_until_stopped(arguments: argparse.Namespace) -> None:
    stopped = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, stopped.set)
    double = QdrantDouble(
        version=arguments.version, path=arguments.path, api_key=arguments.api_key, delay_s=arguments.delay_ms / 1000
    )
    await double.start(arguments.port, arguments.host)
    print(f"listening on http://{arguments.host}:{double.port}", flush=True)
    await stopped.wait()
    await double.stop()
    await double.local.close()


def main() -> None:
    """Serve as a process of its own."""
    parser = argparse.ArgumentParser(description="A stand-in for a Qdrant server.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--path", type=Path, help="folder to keep points in; default: in memory")
    parser.add_argument("--version", default="1.19.1", help="what it says it is")
    parser.add_argument("--api-key", help="the key to insist on")
    parser.add_argument("--delay-ms", type=float, default=0.0, help="how long every call waits")
    asyncio.run(_serve_until_stopped(parser.parse_args()))


if __name__ == "__main__":
    main()
