"""Cutting a stream of things to store into requests that the server takes."""

from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Final
from uuid import uuid4

from lorebank.v1.memory_pb2 import Memory
from lorebank.v1.store_pb2 import StoreRequest

MAX_ITEMS: Final = 500
MAX_BYTES: Final = 3 * 1024 * 1024
_FRAMING_BYTES: Final = 8
"""Most bytes that an item of less than MAX_BYTES adds around itself."""

Storable = Memory | StoreRequest


async def batches(
    things: Iterable[Storable] | AsyncIterable[Storable], *, on_duplicate: int, max_items: int
) -> AsyncIterator[list[StoreRequest]]:
    """Yield lists of at most ``max_items`` requests and 3 MiB, in order; a larger request stands alone.

    A request that has no request id gets one; the caller's messages stay as they are.
    """
    batch: list[StoreRequest] = []
    size_bytes = 0
    async for thing in _each(things):
        request = _request(thing, on_duplicate)
        request_bytes = request.ByteSize() + _FRAMING_BYTES
        if batch and (len(batch) == max_items or size_bytes + request_bytes > MAX_BYTES):
            yield batch
            batch, size_bytes = [], 0
        batch.append(request)
        size_bytes += request_bytes
    if batch:
        yield batch


async def _each(things: Iterable[Storable] | AsyncIterable[Storable]) -> AsyncIterator[Storable]:
    if isinstance(things, AsyncIterable):
        async for thing in things:
            yield thing
    else:
        for thing in things:
            yield thing


def _request(thing: Storable, on_duplicate: int) -> StoreRequest:
    request = StoreRequest()
    if isinstance(thing, StoreRequest):
        request.CopyFrom(thing)
    else:
        request.memory.CopyFrom(thing)
    if on_duplicate and not request.on_duplicate:
        request.on_duplicate = on_duplicate  # type: ignore[assignment] # an enum's number is checked by protobuf
    request.request_id = request.request_id or str(uuid4())
    return request
