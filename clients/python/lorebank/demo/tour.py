"""The tour itself: store, find by meaning and by words, supersede, vote, walk the graph."""

from collections.abc import Sequence
from time import perf_counter

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from lorebank.client import AsyncClient
from lorebank.demo import world
from lorebank.demo.own_server import own_server
from lorebank.errors import LorebankError
from lorebank.v1.find_pb2 import FindResponse
from lorebank.v1.memory_pb2 import Memory
from lorebank.v1.store_pb2 import StoreRequest

_console = Console(highlight=False, soft_wrap=True)


async def run() -> int:
    """Take the tour; returns 0 when every call answered as the tour says."""
    _console.print("Starting a server of its own in a temporary folder ...")
    begin = perf_counter()
    async with own_server() as (client, address):
        _console.print(f"It answers on {address} after {perf_counter() - begin:.1f} s: no key, no container.")
        ids = await _store(client)
        await _change(client, ids)
        await _ask(client, ids)
        await _show_history(client)
        await _vote(client)
        await _walk(client, ids)
    _console.print()
    _console.print("The server, its database and its folder are gone again. Yours starts with `make run`.")
    return 0


async def _store(client: AsyncClient) -> dict[str, str]:
    _heading("Storing what a team knows")
    ids: dict[str, str] = {}
    edges = 0
    begin = perf_counter()
    for name in world.WORLDS:
        stored, linked = await _store_world(client, world.memories(name), ids)
        edges += linked
        _console.print(f"  {name:<10} {stored:>3} memories")
    seconds = perf_counter() - begin
    _console.print(
        f"  {len(ids)} memories and {edges} relations in {seconds:.1f} s, each embedded on this machine's processor."
    )
    example = world.memories("support")[0]
    again = await client.store(memory=example)
    what = "UNCHANGED" if again.memory.id == ids[example.key] else "another memory"
    _console.print(f'  The same memory sent once more: {what}, id {again.memory.id}: "{_short(again.memory.content)}"')
    return ids


async def _store_world(client: AsyncClient, memories: Sequence[Memory], ids: dict[str, str]) -> tuple[int, int]:
    """Store memories so that what a link points to is there first; returns memories and relations stored."""
    waiting = list(memories)
    outgoing: dict[str, list[world.Link]] = {}
    for link in world.links():
        outgoing.setdefault(link.source_key, []).append(link)
    stored = edges = 0
    while waiting:
        inside = {memory.key for memory in waiting}
        ready = [m for m in waiting if not any(link.target_key in inside for link in outgoing.get(m.key, ()))]
        ready = ready or waiting[:1]  # links in a circle: the one back to a later memory is left out
        requests = [
            StoreRequest(
                memory=memory,
                links=[
                    StoreRequest.Link(
                        type=link.type, target=ids[link.target_key], strength=link.strength, context=link.context
                    )
                    for link in outgoing.get(memory.key, ())
                    if link.target_key in ids
                ],
            )
            for memory in ready
        ]
        position = 0
        async for item in client.store_many(requests):
            if item.HasField("failure"):
                raise LorebankError(f"{ready[position].key}: {item.failure.message}")
            ids[ready[position].key] = item.response.memory.id
            stored += 1
            edges += len(requests[position].links)
            position += 1
        waiting = [memory for memory in waiting if memory.key not in ids]
    return stored, edges


async def _change(client: AsyncClient, ids: dict[str, str]) -> None:
    _heading("The world changes: a new memory takes the old one's place")
    changes = world.changes()
    for number, change in enumerate(changes):
        answer = await client.supersede([ids[change.supersedes_key]], memory=change.memory, reason=change.reason)
        ids[change.memory.key] = answer.memory.id
        if number < 3:
            (old,) = answer.superseded
            _console.print(f"  was  [dim]{old.id} {_escaped(old.content)}[/dim]")
            _console.print(f"  now  {answer.memory.id} {_escaped(answer.memory.content)}")
    _console.print(f"  ... {len(changes)} facts in all. The old ones are hidden from Find, not lost.")


async def _ask(client: AsyncClient, ids: dict[str, str]) -> None:
    questions = world.questions()
    names = {memory_id: key for key, memory_id in ids.items()}
    for why, title in (("meaning", "Finding by meaning: the question uses other words"), ("words", "Finding by words")):
        _heading(title)
        chosen = [question for question in questions if question.why == why]
        for number, question in enumerate(chosen):
            answer = await client.find(question.query, limit=3)
            if number < 4:
                _show_hits(question.query, answer)
        ranks = [await _rank(client, question, names) for question in chosen]
        first = sum(rank == 1 for rank in ranks)
        three = _within(ranks, 3)
        _console.print(
            f"  Of {len(ranks)} such questions, {first} find their answer first, {three} in the first three."
        )


async def _rank(client: AsyncClient, question: world.Question, names: dict[str, str]) -> int:
    answer = await client.find(question.query, limit=10, skip_usage=True)
    keys = [names.get(hit.memory.id) for hit in answer.hits]
    return keys.index(question.expect_key) + 1 if question.expect_key in keys else 0


def _within(ranks: Sequence[int], depth: int) -> int:
    return sum(1 <= rank <= depth for rank in ranks)


def _show_hits(query: str, answer: FindResponse) -> None:
    _console.print(f"  [bold]{_escaped(query)}[/bold]")
    for hit in answer.hits[:2]:
        parts = hit.parts
        _console.print(
            f"    {hit.score:.2f}  {hit.memory.id}  {_escaped(_short(hit.memory.content, 96))}\n"
            f"          [dim]meaning {parts.similarity:.2f} of {parts.max_similarity:.2f}, "
            f"words {parts.lexical:.1f} of {parts.max_lexical:.1f}, "
            f"strength {parts.strength:.2f}{_matched(hit)}[/dim]"
        )


def _matched(hit: FindResponse.Hit) -> str:
    return f"; shared words: {_escaped(', '.join(hit.matched))}" if hit.matched else ""


async def _show_history(client: AsyncClient) -> None:
    _heading("A fact's history")
    change = world.changes()[0]
    current = await client.get(key=change.memory.key)
    await client.update(current.id, title="Who to ask about the component library", reason="easier to scan")
    for memory_id in (*current.supersedes, current.id):
        async for revision in client.history(memory_id):
            name = type(revision).Change.Name(revision.change).removeprefix("CHANGE_").lower()
            why = f" ({revision.reason})" if revision.reason else ""
            _console.print(f"  {memory_id} revision {revision.revision}: {name} by {revision.actor}{_escaped(why)}")


async def _vote(client: AsyncClient) -> None:
    _heading("What helped rises, what misled sinks")
    query = "customer asks for a refund"
    before = await client.find(query, limit=3)
    helped, misled = before.hits[1].memory.id, before.hits[0].memory.id
    for run_number in range(1, 4):
        await client.upvote(helped, run=f"ticket-{run_number}", reason="solved the ticket")
        await client.downvote(misled, run=f"ticket-{run_number}", reason="did not apply")
    after = await client.find(query, limit=3)
    for title, answer in (("before", before), ("after three tickets", after)):
        _console.print(f"  {title}:")
        for hit in answer.hits:
            mark = {helped: "[green]▲[/green]", misled: "[red]▼[/red]"}.get(hit.memory.id, " ")
            text = _escaped(_short(hit.memory.content, 80))
            _console.print(f"    {mark} {hit.score:.3f}  strength {hit.parts.strength:.2f}  {text}")


async def _walk(client: AsyncClient, ids: dict[str, str]) -> None:
    _heading("Walking the graph")
    graph = await client.graph(ids[world.links()[0].source_key], hops=2, max_nodes=14)
    nodes = {node.ref: node for node in graph.nodes}
    children: dict[str, list[tuple[str, str]]] = {}
    placed = {graph.nodes[0].ref}
    for node in graph.nodes[1:]:
        for edge in graph.edges:
            near, far = (edge.source, edge.target) if edge.target == node.ref else (edge.target, edge.source)
            if far == node.ref and near in placed and nodes[near].distance == node.distance - 1:
                arrow = f"{edge.type} →" if edge.target == node.ref else f"← {edge.type}"
                children.setdefault(near, []).append((arrow, node.ref))
                placed.add(node.ref)
                break
    root = graph.nodes[0].ref
    tree = Tree(Text(_short(nodes[root].memory.content, 90)))
    _grow(tree, root, nodes={ref: node.memory for ref, node in nodes.items()}, children=children)
    _console.print(tree)
    _console.print(
        f"  {len(graph.nodes)} memories, {len(graph.edges)} relations{' (there is more)' if graph.truncated else ''}."
    )


def _grow(tree: Tree, ref: str, *, nodes: dict[str, Memory], children: dict[str, list[tuple[str, str]]]) -> None:
    for arrow, child in children.get(ref, ()):
        branch = tree.add(Text.assemble((f"{arrow} ", "cyan"), _short(nodes[child].content, 80)))
        _grow(branch, child, nodes=nodes, children=children)


def _heading(text: str) -> None:
    _console.print()
    _console.print(f"[bold cyan]{text}[/bold cyan]")


def _short(text: str, width: int = 72) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def _escaped(text: str) -> str:
    return text.replace("[", r"\[")
