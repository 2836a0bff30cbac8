"""From exceptions to statuses: the only place of this layer that catches everything."""

from __future__ import annotations

from typing import Any, Final
from uuid import uuid4

import grpc
import structlog

from lorebank_server.rpc import status
from lorebank_server.telemetry.grpc_handlers import (
    Context,
    Continuation,
    Handler,
    awaitable_behaviour,
    with_behaviour,
)
from lorebank_server.telemetry.redaction import describe_exception

_log: Final = structlog.get_logger(__name__)


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Ends a call that fails with the status of its domain error, or with INTERNAL and an id to find in the log.

    What is no error passes through: cancellation, an abort that was decided below, and a caller who has left.
    """

    async def intercept_service(
        self,
        continuation: Continuation,
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Give back the handler with its exceptions translated; None stays None."""
        handler = await continuation(handler_call_details)
        behaviour = awaitable_behaviour(handler) if handler is not None else None
        if handler is None or behaviour is None:
            return handler

        async def translated(request: Any, context: Context) -> Any:
            try:
                return await behaviour(request, context)
            except Exception as error:
                if isinstance(error, grpc.aio.BaseError) and not isinstance(error, grpc.aio.UsageError):
                    raise
                known = status.domain_error(error)
                if known is None:
                    await status.abort(context, _reported(error, handler_call_details.method))
                else:
                    await status.abort(context, status.status_of(known))

        return with_behaviour(handler, translated)


def _reported(error: Exception, method: str) -> Any:
    request_id = str(uuid4())
    _log.error(
        "request_failed",
        request_id=request_id,
        method=method,
        error=describe_exception(error),
        exc_info=error,
    )
    return status.internal_status(request_id)
