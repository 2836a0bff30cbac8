"""One call of each kind, made while something is away and again when it is back."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from faulty_world import World

from lorebank import LorebankError
from lorebank.v1 import find_pb2, read_pb2, store_pb2, vote_pb2, write_pb2
from lorebank.v1.memory_pb2 import Memory


@dataclass
class Subjects:
    """What was stored in good times, each for one kind of call, and names for what is to be stored."""

    tag: str
    read: str = ""
    update: str = ""
    vote: str = ""
    supersede: str = ""
    requests: dict[str, str] = field(default_factory=dict)

    def request_id(self, call: str) -> str:
        """The same for every try of a call."""
        return self.requests.setdefault(call, str(uuid4()))

    def words(self, call: str) -> str:
        """What a call writes, which nothing else says."""
        return f"The {call} lighthouse of {self.tag} sells peppermint tea on Thursdays."


@dataclass(frozen=True)
class Outcome:
    """How a call ended.

    Attributes:
        answer: None when it failed.
        took_s: Seconds until then.
    """

    answer: Any
    error: LorebankError | None
    took_s: float


async def prepare(world: World, tag: str) -> Subjects:
    """Store what the calls are about."""
    subjects = Subjects(tag)
    for name in ("read", "update", "vote", "supersede"):
        request = _store(f"The {name} windmill of {tag} grinds rye.", str(uuid4()))
        setattr(subjects, name, (await world.call("Store", request)).memory.id)
    return subjects


def _store(content: str, request_id: str) -> store_pb2.StoreRequest:
    return store_pb2.StoreRequest(memory=Memory(content=content), request_id=request_id)


def _batch(subjects: Subjects) -> store_pb2.BatchStoreRequest:
    items = [
        _store(subjects.words(f"{number} batched"), subjects.request_id(f"batch {number}")) for number in ("one", "two")
    ]
    return store_pb2.BatchStoreRequest(requests=items)


def _find(mode: str) -> Callable[[Subjects], find_pb2.FindRequest]:
    # A query that was not asked before: an embedded one is remembered, and would need no embedder.
    def build(subjects: Subjects) -> find_pb2.FindRequest:
        return find_pb2.FindRequest(
            query=f"windmill of {subjects.tag} {uuid4().hex}", mode=find_pb2.FindRequest.Mode.Value(f"MODE_{mode}")
        )

    return build


def _update(subjects: Subjects) -> write_pb2.UpdateMemoryRequest:
    request = write_pb2.UpdateMemoryRequest(
        memory=Memory(id=subjects.update, content=subjects.words("updated")), request_id=subjects.request_id("update")
    )
    request.update_mask.paths.append("content")
    return request


def _vote(subjects: Subjects) -> vote_pb2.VoteRequest:
    ballot = vote_pb2.VoteRequest.Ballot(id=subjects.vote, signal=vote_pb2.VoteRequest.SIGNAL_UPVOTE)
    return vote_pb2.VoteRequest(ballots=[ballot])


def _supersede(subjects: Subjects) -> store_pb2.SupersedeRequest:
    return store_pb2.SupersedeRequest(
        ids=[subjects.supersede],
        memory=Memory(content=subjects.words("superseding")),
        request_id=subjects.request_id("supersede"),
    )


CALLS: dict[str, tuple[str, Callable[[Subjects], Any]]] = {
    "Store": ("Store", lambda subjects: _store(subjects.words("stored"), subjects.request_id("store"))),
    "BatchStore": ("BatchStore", _batch),
    "Find HYBRID": ("Find", _find("HYBRID")),
    "Find SEMANTIC": ("Find", _find("SEMANTIC")),
    "Find LEXICAL": ("Find", _find("LEXICAL")),
    "GetMemory": ("GetMemory", lambda subjects: read_pb2.GetMemoryRequest(id=subjects.read)),
    "ListMemories": ("ListMemories", lambda _: read_pb2.ListMemoriesRequest()),
    "UpdateMemory": ("UpdateMemory", _update),
    "Vote": ("Vote", _vote),
    "Supersede": ("Supersede", _supersede),
}
"""Procedure and request of every kind of call."""

BY_MEANING = ("Find HYBRID", "Find SEMANTIC")

WRITTEN = {
    "Store": ("stored",),
    "BatchStore": ("one batched", "two batched"),
    "UpdateMemory": ("updated",),
    "Supersede": ("superseding",),
}
"""What each call writes, in the words of ``Subjects.words``."""


async def attempt(world: World, subjects: Subjects, call: str, *, deadline_s: float) -> Outcome:
    """Make one call, once."""
    procedure, build = CALLS[call]
    begun = time.monotonic()
    answer, error = None, None
    try:
        answer = await world.call(procedure, build(subjects), deadline_s=deadline_s)
    except LorebankError as failure:
        error = failure
    return Outcome(answer, error, time.monotonic() - begun)
