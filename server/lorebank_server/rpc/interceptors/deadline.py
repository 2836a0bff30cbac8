"""The caller's deadline, told to whatever comes after it in the same task."""

from __future__ import annotations

from typing import Any

import grpc

from lorebank_server.ports.deadline import answering_within
from lorebank_server.telemetry.grpc_handlers import (
    Context,
    Continuation,
    Handler,
    awaitable_behaviour,
    with_behaviour,
)


class DeadlineInterceptor(grpc.aio.ServerInterceptor):
    """Makes the time that a call has left known to operations and adapters, which divide it among their steps.

    It ends nothing itself: gRPC cancels a call whose deadline has passed.
    """

    async def intercept_service(
        self,
        continuation: Continuation,
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Give back the handler with the deadline set around it; None stays None."""
        handler = await continuation(handler_call_details)
        behaviour = awaitable_behaviour(handler) if handler is not None else None
        if handler is None or behaviour is None:
            return handler

        async def timed(request: Any, context: Context) -> Any:
            with answering_within(context.time_remaining()):
                return await behaviour(request, context)

        return with_behaviour(handler, timed)
