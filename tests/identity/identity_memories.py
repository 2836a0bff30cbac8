"""Memories of every scope, owner and project in two tenants, and who ought to see which."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from identity_world import World, database_owner

from lorebank import AsyncClient, NotFound

TENANT, RIVAL = "acme", "rival"
TOPIC = "How is the checkout service deployed?"
MORE_THAN_ALL = 100


@dataclass(frozen=True)
class Fact:
    """A memory under test."""

    name: str
    space: str
    scope: str
    owner: str
    project: str
    id: str
    uid: str


@dataclass(frozen=True)
class Viewer:
    """A key that looks."""

    space: str
    owner: str
    role: str = "writer"
    project: str = ""

    def sees(self, fact: Fact) -> bool:
        """The promise of the contract, in its own words."""
        private_to_another = fact.scope in {"user", "project"} and fact.owner != self.owner
        behind_the_binding = bool(self.project) and fact.project not in {"", self.project}
        return fact.space == self.space and not private_to_another and not behind_the_binding


VIEWERS = {
    "alice": Viewer(TENANT, "alice"),
    "alice-in-shop": Viewer(TENANT, "alice", project="shop"),
    "alice-in-blog": Viewer(TENANT, "alice", project="blog"),
    "bob": Viewer(TENANT, "bob"),
    "bob-in-shop": Viewer(TENANT, "bob", project="shop"),
    "reader": Viewer(TENANT, "carol", role="reader"),
    "admin": Viewer(TENANT, "admin", role="admin"),
    "admin-in-blog": Viewer(TENANT, "admin", role="admin", project="blog"),
    "alice-elsewhere": Viewer(RIVAL, "alice"),
    "operator": Viewer("default", "operator", role="admin"),
}
_SCOPES = {"user": ("", "shop", "blog"), "project": ("shop", "blog"), "team": ("", "shop", "blog")}


class Library:
    """The memories, all linked to one that everybody in the space sees, and the viewers' clients."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.facts: dict[str, Fact] = {}
        self.secrets: dict[str, str] = {"operator": world.operator}
        self.clients: dict[str, AsyncClient] = {}
        self.hubs: dict[str, str] = {}

    def fact(self, name: str) -> Fact:
        """A fact by its name, ``space-scope-owner-project``."""
        return self.facts[name]

    def seen_by(self, viewer: str, among: Callable[[Fact], bool] = lambda _: True) -> set[str]:
        """Names of the facts that a viewer ought to see."""
        return {fact.name for fact in self.facts.values() if VIEWERS[viewer].sees(fact) and among(fact)}

    def names(self, ids: Any) -> set[str]:
        """Names of facts by their ids; an id that is none of theirs stands for itself."""
        known = {fact.id: fact.name for fact in self.facts.values()}
        return {known.get(each, each) for each in ids}

    async def fill(self) -> None:
        """Store everything."""
        for name, viewer in VIEWERS.items():
            if name not in self.secrets:
                key = await self.world.key(viewer.space, viewer.owner, viewer.role, project=viewer.project)
                self.secrets[name] = key.secret
            self.clients[name] = self.world.client(self.secrets[name])
        writers = {(TENANT, "alice"): "alice", (TENANT, "bob"): "bob", (RIVAL, "alice"): "alice-elsewhere"}
        for (space, owner), viewer in writers.items():
            for scope, projects in _SCOPES.items():
                for project in projects:
                    await self._store(self.clients[viewer], space, scope, owner, project)
        for project in ("", "shop", "blog"):
            await self._store(self.clients["admin"], TENANT, "global", "admin", project)

    async def _store(self, client: AsyncClient, space: str, scope: str, owner: str, project: str) -> None:
        name = f"{space}-{scope}-{owner}-{project or 'anywhere'}"
        links = [("related_to", self.hubs[space])] if space in self.hubs else []
        if not links:
            hub = await client.store("The checkout service is deployed to production.", scope="team")
            self.hubs[space] = hub.memory.id
            self.facts[f"{space}-hub"] = Fact(f"{space}-hub", space, "team", owner, "", hub.memory.id, hub.memory.uid)
            links = [("related_to", hub.memory.id)]
        stored = await client.store(
            f"The checkout service of {name} is deployed by its own pipeline.",
            scope=scope,
            project=project,
            key=f"deploy of {name}",
            links=links,
        )
        assert (scope, project, owner) == (_scope_name(stored.memory.scope), stored.memory.project, stored.memory.owner)
        self.facts[name] = Fact(name, space, scope, owner, project, stored.memory.id, stored.memory.uid)


async def every_bucket(dsn: str) -> list[int]:
    """All buckets of all spaces."""
    async with database_owner(dsn) as connection:
        return [row["id"] for row in await connection.fetch("select id from buckets order by id")]


def _scope_name(number: int) -> str:
    return ("", "user", "project", "team", "global")[number]


async def _if_there(call: Awaitable[Any]) -> list[str]:
    try:
        return [(await call).id]
    except NotFound:
        return []


async def got_by_id(library: Library, client: AsyncClient) -> set[str]:
    return {found for fact in library.facts.values() for found in await _if_there(client.get(fact.id))}


async def got_by_uid(library: Library, client: AsyncClient) -> set[str]:
    return {found for fact in library.facts.values() for found in await _if_there(client.get(uid=fact.uid))}


async def got_by_key(library: Library, client: AsyncClient) -> set[str]:
    found = {
        each for fact in library.facts.values() for each in await _if_there(client.get(key=f"deploy of {fact.name}"))
    }
    return found | {hub for hub in library.hubs.values() if await _if_there(client.get(hub))}


async def got_together(library: Library, client: AsyncClient) -> set[str]:
    asked = {fact.id for fact in library.facts.values()}
    answer = await client.get_many(asked)
    got = {memory.id for memory in answer.memories}
    assert asked - got == set(answer.missing)
    return got


async def listed(_: Library, client: AsyncClient) -> set[str]:
    page = [memory async for memory in client.list(page_size=3)]
    assert len(page) == len({memory.id for memory in page})
    return {memory.id for memory in page}


async def listed_by_use(_: Library, client: AsyncClient) -> set[str]:
    return {memory.id async for memory in client.list(order_by="use_count", include_stale=True)}


async def found_by_all(_: Library, client: AsyncClient) -> set[str]:
    return await _found(client, TOPIC, mode="hybrid")


async def found_by_meaning(_: Library, client: AsyncClient) -> set[str]:
    return await _found(client, TOPIC, mode="semantic")


async def found_by_words(_: Library, client: AsyncClient) -> set[str]:
    return await _found(client, TOPIC, mode="lexical")


async def found_in_a_selection(library: Library, client: AsyncClient) -> set[str]:
    ids = [fact.id for fact in library.facts.values()]
    return await _found(client, TOPIC, mode="semantic", ids=ids)


async def found_as_similar(library: Library, client: AsyncClient) -> set[str]:
    return await _similar(library, client, mode="hybrid")


async def found_as_similar_in_words(library: Library, client: AsyncClient) -> set[str]:
    return await _similar(library, client, mode="lexical")


async def walked(library: Library, client: AsyncClient) -> set[str]:
    reached: set[str] = set()
    for hub in library.hubs.values():
        if await _if_there(client.get(hub)):
            graph = await client.graph(hub, hops=3)
            nodes = {node.memory.id for node in graph.nodes}
            assert not graph.truncated
            assert nodes - {hub} == {edge.source for edge in graph.edges}
            assert {hub} >= {edge.target for edge in graph.edges}
            reached |= nodes
    return reached


async def read_in_history(library: Library, client: AsyncClient) -> set[str]:
    seen = set()
    for fact in library.facts.values():
        try:
            seen |= {revision.memory.id async for revision in client.history(fact.id)}
        except NotFound:
            continue
    return seen


READ_PATHS = (
    got_by_id,
    got_by_uid,
    got_by_key,
    got_together,
    listed,
    listed_by_use,
    found_by_all,
    found_by_meaning,
    found_by_words,
    found_in_a_selection,
    found_as_similar,
    found_as_similar_in_words,
    walked,
    read_in_history,
)


async def _found(client: AsyncClient, query: str, **how: Any) -> set[str]:
    answer = await client.find(query, limit=MORE_THAN_ALL, skip_usage=True, **how)
    assert not answer.degraded
    return {hit.memory.id for hit in answer.hits}


async def _similar(library: Library, client: AsyncClient, mode: Any) -> set[str]:
    found = set()
    for hub in library.hubs.values():
        if await _if_there(client.get(hub)):
            answer = await client.find(similar_to=hub, limit=MORE_THAN_ALL, mode=mode, skip_usage=True)
            found |= {hub} | {hit.memory.id for hit in answer.hits}
    return found
