"""The filter of every read, on its way in."""

from lorebank.v1 import selector_pb2
from lorebank_server.domain.memory import Kind, Polarity, Scope, State
from lorebank_server.domain.selector import Selector
from lorebank_server.rpc.conversion.values import time_or_none


def to_selector(message: selector_pb2.Selector) -> Selector:
    """A selector; without states it means active memories."""
    return Selector(
        kinds=tuple(Kind(kind) for kind in message.kinds),
        categories=tuple(message.categories),
        collections=tuple(message.collections),
        tags_all=tuple(message.tags_all),
        tags_any=tuple(message.tags_any),
        subjects=tuple(message.subjects),
        scopes=tuple(Scope(scope) for scope in message.scopes),
        project=message.project,
        states=tuple(State(state) for state in message.states) or (State.ACTIVE,),
        agents=tuple(message.agents),
        runs=tuple(message.runs),
        owners=tuple(message.owners),
        ids=tuple(message.ids),
        created_after=time_or_none(message, "created_after"),
        created_before=time_or_none(message, "created_before"),
        polarity=Polarity(message.polarity),
        include_stale=message.include_stale,
    )
