"""Who calls, and whether their role suffices, before anything of the request is looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc

from lorebank_server.domain.errors import UnauthenticatedError
from lorebank_server.operations.authenticate import Authenticator, require_role
from lorebank_server.rpc.caller import called_by
from lorebank_server.rpc.permissions import REQUIRED_ROLES, is_ours
from lorebank_server.telemetry.grpc_handlers import (
    Context,
    Continuation,
    Handler,
    awaitable_behaviour,
    with_behaviour,
)

_HEADER = "authorization"
_SCHEME = "bearer"


class AuthenticationInterceptor(grpc.aio.ServerInterceptor):
    """Admits the principals that a procedure is open to. Health and reflection are open to all."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    async def intercept_service(
        self,
        continuation: Continuation,
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Give back the handler behind a check of the credential; None stays None."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        behaviour = awaitable_behaviour(handler) if handler is not None and is_ours(method) else None
        if handler is None or behaviour is None:
            return handler

        async def authenticated(request: Any, context: Context) -> Any:
            principal = await self._authenticator.authenticate(
                bearer_token(handler_call_details.invocation_metadata or ())
            )
            require_role(principal, REQUIRED_ROLES[method])
            with called_by(principal):
                return await behaviour(request, context)

        return with_behaviour(handler, authenticated)


def bearer_token(metadata: Sequence[tuple[str, str | bytes]]) -> str | None:
    """The API key in the metadata ``authorization: Bearer <key>``; None when there is no such metadata.

    Raises:
        UnauthenticatedError: There is one that says something else, or more than one.
    """
    values = [str(value) for key, value in metadata if key == _HEADER]
    if not values:
        return None
    scheme, _, token = values[0].strip().partition(" ")
    if len(values) > 1 or scheme.lower() != _SCHEME or not token.strip():
        raise UnauthenticatedError(
            "Send the API key once, as the metadata 'authorization: Bearer <key>'.", reason="CREDENTIAL_MALFORMED"
        )
    return token.strip()
