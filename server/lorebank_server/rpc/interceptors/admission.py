"""From bytes to a request that may be answered: decoded, in the caller's own space, and with fields that count."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message

from lorebank_server.domain.errors import InvalidArgumentError, ResourceExhaustedError
from lorebank_server.operations.authenticate import require_own_space
from lorebank_server.rpc import unsupported, validation
from lorebank_server.rpc.caller import caller
from lorebank_server.rpc.permissions import acts_in_own_space, is_ours
from lorebank_server.telemetry.grpc_handlers import (
    Behaviour,
    Context,
    Continuation,
    Handler,
    awaitable_behaviour,
    with_behaviour,
)


class AdmissionInterceptor(grpc.aio.ServerInterceptor):
    """Decodes requests itself, because gRPC answers UNKNOWN without details to bytes that are no message.

    The space is looked at before any other field, so that a space of others and none at all look the same. Answers
    above the limit are refused here too, with details.
    """

    def __init__(self, *, max_message_bytes: int) -> None:
        self._max_message_bytes = max_message_bytes

    async def intercept_service(
        self,
        continuation: Continuation,
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Give back the handler behind a check of the request; None stays None."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        behaviour = awaitable_behaviour(handler) if handler is not None and is_ours(method) else None
        if handler is None or behaviour is None:
            return handler
        admit = _Admission(handler, method)
        respond = behaviour if handler.response_streaming else self._bounded(behaviour)

        async def admitted(request: Any, context: Context) -> Any:
            return await respond(admit.each(request) if admit.streaming else admit.one(request), context)

        return with_behaviour(handler, admitted, raw_requests=True)

    def _bounded(self, behaviour: Behaviour) -> Behaviour:
        async def bounded(request: Any, context: Context) -> Any:
            response = await behaviour(request, context)
            size = response.ByteSize()
            if size > self._max_message_bytes:
                raise ResourceExhaustedError(
                    f"The answer has {size} bytes; at most {self._max_message_bytes} are sent. Ask for fewer items, "
                    "or for VIEW_SUMMARY. If the call wrote something, it is written.",
                    reason="ANSWER_TOO_LARGE",
                    metadata={"bytes": str(size), "max_bytes": str(self._max_message_bytes)},
                )
            return response

        return bounded


class _Admission:
    def __init__(self, handler: Handler, method: str) -> None:
        self.streaming = handler.request_streaming
        self._decode: Any = handler.request_deserializer
        self._in_own_space = acts_in_own_space(method)

    def one(self, data: bytes) -> Message:
        try:
            request: Any = self._decode(data)
        except DecodeError:
            raise InvalidArgumentError(
                "The request's bytes are no valid message of this procedure: a field is cut off, or a text is not "
                "UTF-8. Use code generated from the protos of lorebank.v1.",
                reason="MALFORMED_MESSAGE",
            ) from None
        if self._in_own_space:
            require_own_space(caller(), request.space)
        validation.check_values(request)
        unsupported.refuse_unsupported(request)
        return request  # type: ignore[no-any-return]

    async def each(self, stream: AsyncIterator[bytes]) -> AsyncIterator[Message]:
        async for data in stream:
            yield self.one(data)
