"""What every interceptor of this server does to a handler: take its behaviour out, and put another one in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import Any, TypeAlias

import grpc

# Generic in the stubs alone, hence quoted.
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Continuation: TypeAlias = "Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]"
Behaviour: TypeAlias = "Callable[[Any, Context], Awaitable[Any]]"


def plain_behaviour(handler: Handler) -> Any:
    """The function of whatever kind that a handler calls."""
    return handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream


def awaitable_behaviour(handler: Handler) -> Behaviour | None:
    """The behaviour of a handler as one coroutine function, or None when it is not asynchronous.

    A generator becomes a coroutine that writes its responses, so that whatever surrounds it begins and ends in one
    task even when the caller leaves halfway.
    """
    behaviour = plain_behaviour(handler)
    if isasyncgenfunction(behaviour):
        return _writing(behaviour)
    awaitable: Behaviour | None = behaviour if iscoroutinefunction(behaviour) else None
    return awaitable


def with_behaviour(handler: Handler, behaviour: Behaviour, *, raw_requests: bool = False) -> Handler:
    """The handler with another behaviour of the same kind; with ``raw_requests`` it is given bytes."""
    make: Any = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[handler.request_streaming, handler.response_streaming]
    rebuilt: Handler = make(
        behaviour,
        request_deserializer=None if raw_requests else handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )
    return rebuilt


def _writing(generate: Callable[[Any, Context], AsyncIterator[Any]]) -> Behaviour:
    async def write(request: Any, context: Context) -> None:
        async with aclosing(generate(request, context)) as responses:  # type: ignore[type-var]
            async for response in responses:
                await context.write(response)

    return write
