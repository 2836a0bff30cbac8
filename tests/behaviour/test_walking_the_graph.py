"""Graph: from memories along their relations, as far as asked and no further."""

from datetime import timedelta

import pytest

from lorebank.v1 import store_pb2


def link(kind, target, strength=1.0):
    return store_pb2.StoreRequest.Link(type=kind, target=target.id, strength=strength)


def refs(graph):
    return [node.ref for node in graph.nodes]


def edges(graph):
    return {(edge.source, edge.type, edge.target) for edge in graph.edges}


@pytest.fixture
async def chain(me):
    """Six memories, each linked to the one before: a <- b <- c <- d <- e <- f."""
    stored = [await me.store("Memory number 0 of a chain.")]
    for number in range(1, 6):
        links = [link("about" if number % 2 else "related_to", stored[-1], strength=1 - number / 10)]
        stored.append(await me.store(f"Memory number {number} of a chain.", links=links))
    return stored


@pytest.mark.parametrize("hops", [0, 1, 2, 3])
async def test_a_walk_goes_as_many_hops_as_asked_in_both_directions(me, chain, hops):
    graph = await me.client.graph(chain[2].id, hops=hops)
    reach = range(max(0, 2 - hops), min(5, 2 + hops) + 1)
    assert {chain[n].id for n in reach} == set(refs(graph))
    assert {chain[n].id: abs(n - 2) for n in reach} == {node.ref: node.distance for node in graph.nodes}
    kinds = {n: "about" if n % 2 else "related_to" for n in range(6)}
    assert {(chain[n].id, kinds[n], chain[n - 1].id) for n in reach if n - 1 in reach} == edges(graph)
    assert not graph.truncated


async def test_weight_is_the_product_of_strengths_on_the_way(me, chain):
    graph = await me.client.graph(chain[0].id, hops=3)
    assert [1.0, 0.9, 0.9 * 0.8, 0.9 * 0.8 * 0.7] == [pytest.approx(node.weight) for node in graph.nodes]
    assert [chain[n].id for n in range(4)] == refs(graph)


async def test_only_the_relation_types_asked_for_are_followed(me, chain):
    graph = await me.client.graph(chain[0].id, hops=3, relation_types=["about"])
    assert ([chain[0].id, chain[1].id], {(chain[1].id, "about", chain[0].id)}) == (refs(graph), edges(graph))
    nothing = await me.client.graph(chain[0].id, hops=3, relation_types=["unheard_of"])
    assert ([chain[0].id], set()) == (refs(nothing), edges(nothing))


async def test_only_edges_that_are_strong_enough_are_followed(me, chain):
    graph = await me.client.graph(chain[0].id, hops=3, min_strength=0.8)
    assert [chain[n].id for n in range(3)] == refs(graph)
    assert 2 == len(graph.edges)


async def test_nodes_come_by_distance_then_weight_then_id(me):
    hub = await me.store("The hub of a wheel.")
    spokes = [
        await me.store(f"Spoke number {n}.", links=[link("about", hub, strength=(n % 3 + 1) / 4)]) for n in range(9)
    ]
    graph = await me.client.graph(hub.id, hops=1)
    strengths = {spoke.id: (n % 3 + 1) / 4 for n, spoke in enumerate(spokes)}
    assert [hub.id, *sorted(strengths, key=lambda ref: (-strengths[ref], ref))] == refs(graph)


async def test_too_many_nodes_are_cut_to_the_heaviest_and_said_to_be(me):
    hub = await me.store("The hub of a wheel.")
    spokes = [await me.store(f"Spoke number {n}.", links=[link("about", hub, strength=n / 10)]) for n in range(1, 9)]
    graph = await me.client.graph(hub.id, hops=1, max_nodes=4)
    assert ([hub.id, *[spoke.id for spoke in spokes[:4:-1]]], True) == (refs(graph), graph.truncated)
    assert {(spoke.id, "about", hub.id) for spoke in spokes[:4:-1]} == edges(graph)
    whole = await me.client.graph(hub.id, hops=1, max_nodes=9)
    assert (9, False) == (len(whole.nodes), whole.truncated)


async def test_more_starting_points_than_nodes_are_cut_and_said_to_be(me, chain):
    graph = await me.client.graph([memory.id for memory in chain], hops=0, max_nodes=3)
    assert (3, True) == (len(graph.nodes), graph.truncated)


@pytest.mark.parametrize("hops", [0, 1, 2, 3])
async def test_both_ends_of_every_edge_are_among_the_nodes(me, chain, hops):
    ring = await me.store("The end of a ring.", links=[link("about", chain[0]), link("about", chain[5])])
    for maximum in (1, 2, 3, 5, 100):
        graph = await me.client.graph([ring.id, chain[3].id], hops=hops, max_nodes=maximum)
        assert {end for edge in graph.edges for end in (edge.source, edge.target)} <= set(refs(graph))
        assert len(set(refs(graph))) == len(graph.nodes) <= maximum
        assert sorted(edges(graph)) == [(edge.source, edge.type, edge.target) for edge in graph.edges]


async def test_starting_points_show_the_edges_among_them(me, chain):
    graph = await me.client.graph([chain[0].id, chain[1].id, chain[4].id, chain[0].id], hops=0)
    assert {(chain[1].id, "about", chain[0].id)} == edges(graph)
    assert {0} == {node.distance for node in graph.nodes}


async def test_an_edge_among_starting_points_is_seen_however_many_stronger_ones_lead_away(me):
    first = await me.store("The first of two hubs.")
    second = await me.store("The second of two hubs.", links=[link("about", first, strength=0.01)])
    facts = [
        store_pb2.StoreRequest(memory={"content": f"Spoke number {n}."}, links=[link("about", first)])
        for n in range(120)
    ]
    await me.call(store_pb2.BatchStoreRequest(requests=facts))
    graph = await me.client.graph([first.id, second.id], hops=0)
    assert ({(second.id, "about", first.id)}, False) == (edges(graph), graph.truncated)


async def test_a_walk_sees_what_was_superseded_but_not_what_was_deleted(me):
    hub = await me.store("The hub of a wheel.")
    kept, gone, old = [await me.store(f"Spoke number {n}.", links=[link("about", hub)]) for n in range(3)]
    beyond = await me.store("Beyond the deleted spoke.", links=[link("about", gone)])
    new = (await me.client.supersede(old.id, "A newer spoke.")).memory
    await me.client.delete(gone.id)
    graph = await me.client.graph(hub.id, hops=3)
    assert {hub.id, kept.id, old.id, new.id} == set(refs(graph))
    assert (new.id, "supersedes", old.id) in edges(graph)
    from_gone = await me.client.graph(gone.id, hops=1)
    assert {gone.id, hub.id, beyond.id} == set(refs(from_gone)), "a starting point may be anything"


async def test_a_walk_leaves_out_what_has_faded_or_is_over(me, time):
    hub = await me.store("The hub of a wheel.", category="fact")
    kept = await me.store("A lasting spoke.", category="fact", links=[link("about", hub)])
    await me.store("A fading spoke.", links=[link("about", hub)])
    ends = time() + timedelta(days=365)
    await me.store("A spoke with an end.", category="fact", valid_until=ends, links=[link("about", hub)])
    assert 4 == len((await me.client.graph(hub.id)).nodes)
    time.advance(days=400)
    assert [hub.id, kept.id] == refs(await me.client.graph(hub.id))


async def test_others_private_memories_are_no_part_of_a_walk(here, me):
    other = await here.caller("other")
    hub = await me.store("The hub of a wheel.", scope="team")
    mine = await me.store("My private spoke.", links=[link("about", hub)])
    theirs = await other.store("Their private spoke.", links=[link("about", hub)])
    assert [hub.id, mine.id] == refs(await me.client.graph(hub.id))
    assert [hub.id, theirs.id] == refs(await other.client.graph(hub.id))


async def test_a_node_carries_its_memory(me, chain):
    (node,) = (await me.client.graph(chain[0].id, hops=0)).nodes
    assert (chain[0].id, chain[0]) == (node.ref, node.memory)


async def test_a_link_given_twice_is_kept_once_as_last_said(me):
    hub = await me.store("The hub of a wheel.")
    await me.store("A spoke.", links=[link("about", hub, 0.2), link("about", hub, 0.7), link("part_of", hub)])
    graph = await me.client.graph(hub.id)
    assert [("about", 0.7), ("part_of", 1.0)] == [(edge.type, edge.strength) for edge in graph.edges]
