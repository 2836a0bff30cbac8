"""Every field of the selector narrows List and Find alike, as plain Python says it should."""

from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import count

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from spaces_apart import Caller, SpaceApart

from lorebank.v1 import find_pb2, memory_pb2, provenance_pb2, read_pb2, selector_pb2, store_pb2
from lorebank.v1.space_pb2 import Space

KINDS = [memory_pb2.KIND_SEMANTIC, memory_pb2.KIND_PROCEDURAL, memory_pb2.KIND_EPISODIC]
CATEGORIES = ["", "agent-memory/preference", "personal/preference", "swarm/pattern"]
SCOPES = [memory_pb2.SCOPE_USER, memory_pb2.SCOPE_PROJECT, memory_pb2.SCOPE_TEAM, memory_pb2.SCOPE_GLOBAL]
ACTIVE, SUPERSEDED, DELETED = memory_pb2.STATE_ACTIVE, memory_pb2.STATE_SUPERSEDED, memory_pb2.STATE_DELETED
_NUMBERS = count(1)


@dataclass(frozen=True)
class World:
    """Memories of every sort, as their caller sees them."""

    me: Caller
    memories: tuple[memory_pb2.Memory, ...]
    moments: tuple[Timestamp, ...]


def sort(number: int) -> memory_pb2.Memory:
    scope = SCOPES[number % 4]
    return memory_pb2.Memory(
        content=f"The canary number {number} sings in the mine.",
        kind=KINDS[number % 3],
        category=CATEGORIES[number // 2 % 4],
        collection=["", "birds", "ops/mine"][number % 3],
        subject=["", "Canary", "canary", "Жар-птица"][number // 3 % 4],
        tags=[tag for place, tag in enumerate(("red", "green", "blue")) if number >> place & 1],
        scope=scope,
        project=["shop", "blog"][number // 5 % 2] if scope in {SCOPES[1], SCOPES[2]} else "",
        polarity=1 + number // 7 % 2,
        provenance=provenance_pb2.Provenance(agent=["", "claude", "bot"][number // 4 % 3], run=f"run-{number % 2}"),
    )


@pytest.fixture(scope="module")
async def world(shared):
    async with AsyncExitStack() as stack:
        space = await shared.operator.spaces.create(Space(id=f"sorts-{next(_NUMBERS)}"))
        here = SpaceApart(space.id, shared.address, shared.dsn, shared.operator_secret, stack, shared.channel)
        me, other = await here.caller("tester", role="admin"), await here.caller("other", role="admin")
        ids, moments = [], []
        for age, owner in enumerate((me, other, me)):
            shared.clock.advance(seconds=10)
            now = Timestamp()
            now.FromDatetime(shared.clock())
            moments.append(now)
            requests = [store_pb2.StoreRequest(memory=sort(n)) for n in range(age * 16, age * 16 + 16)]
            answer = await owner.call(store_pb2.BatchStoreRequest(requests=requests))
            ids += [item.response.memory.id for item in answer.items]
        for memory_id in (ids[0], ids[7], ids[33]):
            await me.client.delete(memory_id)
        await me.client.supersede([ids[1], ids[2]], "The canary sings a new song.", tags=["red"])
        shared.clock.advance(days=400)
        fresh = await me.store("The canary sings in spring.", tags=["red", "green"])
        everything = [memory async for memory in me.client.list(states=[1, 2, 3, 4, 5, 6, 7], include_stale=True)]
        assert fresh.id == everything[0].id
        yield World(me, tuple(everything), tuple(moments))


def oracle(memory: memory_pb2.Memory, selector: selector_pb2.Selector) -> bool:
    full = {"preference": "agent-memory/preference"}
    return all(
        (
            not selector.kinds or memory.kind in selector.kinds,
            not selector.categories or memory.category in [full.get(slug, slug) for slug in selector.categories],
            not selector.collections or memory.collection in selector.collections,
            {tag.lower().strip() for tag in selector.tags_all} <= set(memory.tags),
            not selector.tags_any or {tag.lower().strip() for tag in selector.tags_any} & set(memory.tags),
            not selector.subjects or memory.subject.lower() in [name.lower() for name in selector.subjects],
            not selector.scopes or memory.scope in selector.scopes,
            not selector.project or memory.project == selector.project,
            memory.state in (selector.states or [ACTIVE]),
            not selector.agents or memory.provenance.agent in selector.agents,
            not selector.runs or memory.provenance.run in selector.runs,
            not selector.owners or memory.owner in selector.owners,
            not selector.ids or memory.id in selector.ids,
            not selector.HasField("created_after") or memory.create_time.seconds >= selector.created_after.seconds,
            not selector.HasField("created_before") or memory.create_time.seconds < selector.created_before.seconds,
            not selector.polarity or memory.polarity == selector.polarity,
            selector.include_stale or not memory.quality.stale,
        )
    )


STALE_TOO = {"include_stale": True}
SELECTORS = {
    "nothing": {},
    "stale too": STALE_TOO,
    "one kind": {"kinds": [KINDS[1]], **STALE_TOO},
    "two kinds": {"kinds": KINDS[:2], **STALE_TOO},
    "a category": {"categories": ["swarm/pattern"], **STALE_TOO},
    "a bare category": {"categories": ["preference"]},
    "two categories": {"categories": ["personal/preference", "swarm/pattern"], **STALE_TOO},
    "a collection": {"collections": ["birds"], **STALE_TOO},
    "a pair for a collection": {"collections": ["ops/mine"], **STALE_TOO},
    "all of one tag": {"tags_all": ["Red "], **STALE_TOO},
    "all of two tags": {"tags_all": ["red", "blue"], **STALE_TOO},
    "any of two tags": {"tags_any": ["GREEN", "blue"], **STALE_TOO},
    "tags both ways": {"tags_all": ["red"], "tags_any": ["green", "blue"], **STALE_TOO},
    "a tag that none has": {"tags_any": ["mauve"], **STALE_TOO},
    "a subject in any case": {"subjects": ["CANARY"], **STALE_TOO},
    "a subject beyond ascii": {"subjects": ["жар-ПТИЦА"], **STALE_TOO},
    "the empty subject": {"subjects": [""], **STALE_TOO},
    "a private scope": {"scopes": [SCOPES[0]], **STALE_TOO},
    "two scopes": {"scopes": SCOPES[1:3], **STALE_TOO},
    "a project": {"project": "shop", **STALE_TOO},
    "a scope in a project": {"scopes": [SCOPES[2]], "project": "blog", **STALE_TOO},
    "a project that is none": {"project": "nowhere", **STALE_TOO},
    "deleted": {"states": [DELETED], **STALE_TOO},
    "superseded": {"states": [SUPERSEDED], **STALE_TOO},
    "three states": {"states": [ACTIVE, SUPERSEDED, DELETED], **STALE_TOO},
    "a state that none is in": {"states": [memory_pb2.STATE_PROPOSED], **STALE_TOO},
    "an agent": {"agents": ["claude"], **STALE_TOO},
    "two agents": {"agents": ["claude", "bot"], **STALE_TOO},
    "a run": {"runs": ["run-1"], **STALE_TOO},
    "an owner": {"owners": ["other"], **STALE_TOO},
    "two owners": {"owners": ["other", "tester"], **STALE_TOO},
    "one polarity": {"polarity": memory_pb2.POLARITY_NEGATIVE, **STALE_TOO},
    "everything at once": {
        "kinds": KINDS[:2],
        "tags_any": ["red", "green"],
        "scopes": SCOPES[2:],
        "owners": ["other"],
        "states": [ACTIVE],
        **STALE_TOO,
    },
}


@pytest.mark.parametrize("name", SELECTORS)
async def test_list_and_find_select_what_python_selects(world, name):
    await agree(world, selector_pb2.Selector(**SELECTORS[name]))


@pytest.mark.parametrize(("after", "before"), [(1, None), (None, 1), (1, 2), (0, 2), (2, 0)])
async def test_times_of_creation_are_bounded_below_inclusively_and_above_exclusively(world, after, before):
    selector = selector_pb2.Selector(
        created_after=None if after is None else world.moments[after],
        created_before=None if before is None else world.moments[before],
        include_stale=True,
    )
    if after == 2 and before == 0:
        error = await world.me.refused(read_pb2.ListMemoriesRequest(selector=selector))
        assert "selector.created_before" == error.violations[0].field
        return
    await agree(world, selector)


async def test_ids_select_among_what_is_visible(world):
    wanted = [memory.id for memory in world.memories[::3]]
    await agree(world, selector_pb2.Selector(ids=[*wanted, "zzzzzzzz"], include_stale=True))
    await agree(world, selector_pb2.Selector(ids=wanted[:1], tags_any=["mauve"], include_stale=True))


async def test_some_are_stale_and_some_are_not(world):
    stale = [memory.quality.stale for memory in world.memories if memory.state == ACTIVE]
    assert {True, False} == set(stale)


async def agree(world, selector):
    expected = {memory.id for memory in world.memories if oracle(memory, selector)}
    page = await world.me.call(read_pb2.ListMemoriesRequest(selector=selector, page_size=500))
    assert expected == {memory.id for memory in page.memories}
    assert len(expected) == len(page.memories) == page.total_size
    for mode in (1, 2, 3):
        request = find_pb2.FindRequest(
            query="Which canary sings in the mine?", selector=selector, limit=100, mode=mode, skip_usage=True
        )
        answer = await world.me.call(request)
        assert expected == {hit.memory.id for hit in answer.hits}, find_pb2.FindRequest.Mode.Name(mode)
