"""Procedures of the contract that this server does not serve: refused in words, with what to do instead."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import grpc

from lorebank_server.domain.errors import NotImplementedYetError
from lorebank_server.rpc.permissions import PACKAGE, is_ours
from lorebank_server.telemetry.grpc_handlers import (
    Context,
    Continuation,
    Handler,
    plain_behaviour,
    with_behaviour,
)

ALTERNATIVES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ForgetMemories": "Delete memories one by one with DeleteMemory.",
        "RecordOutcome": "Say what each memory was worth with Vote.",
        "ValidateMemory": "Say that a memory still holds with an upvote.",
        "ReviewMemory": "Nothing waits for review: memories are active as soon as they are stored.",
        "RenderContext": "Write the block yourself from the hits of Find.",
        "ExplainFind": "Every hit of Find carries the parts of its score.",
        "ListBallots": "The counts of all ballots are in the quality of the memory; read it with GetMemory.",
        "RevertEvolution": "There is nothing to undo: storing a memory changes no other one.",
        "UpsertEntities": "Store what you know of an entity as memories that name it as their subject.",
        "GetEntities": "List the memories about an entity with selector.subjects.",
        "ListEntities": "List memories by their subjects with ListMemories.",
        "DeleteEntities": "Delete the memories about an entity with DeleteMemory.",
        "UpsertRelations": "Relate memories when you store them, with links.",
        "ListRelations": "Walk the relations of a memory with Graph.",
        "PutCase": "Store a case as a memory with a card.",
        "ListCases": "List memories with ListMemories.",
        "DeleteCases": "Delete memories with DeleteMemory.",
        "MatchCases": "Describe the symptoms to Find.",
        "GetStats": "ListMemories answers a total_size for any selector.",
        "InstallPack": "GetSpace names the packs in force; use their categories.",
        "ListPacks": "GetSpace names the packs in force.",
        "Prune": "Stale memories are left out of answers as it is; delete others with DeleteMemory.",
        "ListEvents": "Read the history of one memory with ListRevisions.",
        "WatchEvents": "Ask ListMemories for the latest changes with order_by 'update_time desc'.",
        "Export": "Page through ListMemories.",
        "Import": "Store memories with BatchStore.",
    }
)
"""What to do instead, by procedure."""

_OTHERWISE: Final = "Nothing takes its place; do without it."


class UnservedInterceptor(grpc.aio.ServerInterceptor):
    """Answers UNIMPLEMENTED with details where a servicer has left a procedure as it was generated."""

    async def intercept_service(
        self,
        continuation: Continuation,
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Give back the handler, or a refusal in its place; None stays None."""
        handler = await continuation(handler_call_details)
        if handler is None or not is_ours(handler_call_details.method) or not _is_generated(handler):
            return handler
        procedure = handler_call_details.method.rpartition("/")[2]

        async def refuse(_request: Any, _context: Context) -> Any:
            raise NotImplementedYetError(
                f"This server does not serve {procedure}. {ALTERNATIVES.get(procedure, _OTHERWISE)}",
                reason="PROCEDURE_NOT_SERVED",
                metadata={"procedure": procedure},
            )

        return with_behaviour(handler, refuse)


def _is_generated(handler: Handler) -> bool:
    return str(plain_behaviour(handler).__module__).startswith(f"{PACKAGE}.")
