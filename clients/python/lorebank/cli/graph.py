"""``lorebank graph``."""

from typing import Annotated

from cyclopts import App, Parameter

from lorebank.cli.examples import examples
from lorebank.cli.failures import UsageError
from lorebank.cli.memories import text_of
from lorebank.cli.output import note, print_json, print_rows
from lorebank.cli.session import Own
from lorebank.v1.graph_pb2 import GraphResponse


def register(app: App) -> None:
    """Add the command."""
    app.command(
        graph,
        help_epilogue=examples(
            "lorebank graph a1B2c3D4",
            "lorebank graph a1B2c3D4 --hops 2 --type depends_on --type uses --min-strength 0.5",
        ),
    )


async def graph(
    *ids: str,
    hops: int = 1,
    type: Annotated[tuple[str, ...], Parameter(name="--type")] = (),
    min_strength: float = 0.0,
    max_nodes: int = 100,
    session: Own,
) -> None:
    """Walk from memories along their relations, both ways.

    It prints the memories reached, nearest first, then the relations between them.

    Args:
        ids: Ids of 1 to 100 memories to start from.
        hops: How many relations away to go, 0 to 3.
        type: Follow only relations of this type; may be repeated.
        min_strength: Least strength of a relation to follow, 0 to 1.
        max_nodes: Most memories to show, 1 to 500.
        session: The global options.
    """
    if not ids:
        raise UsageError("Say which memories to start from.")
    async with session.client() as client:
        answer = await client.graph(
            ids,
            hops=hops,
            relation_types=type,
            min_strength=min_strength,
            max_nodes=max_nodes,
        )
    if session.json:
        print_json(answer)
        return
    _print(answer)


def _print(answer: GraphResponse) -> None:
    print_rows(
        ("hops", "weight", "id", "text"),
        (
            (str(node.distance), f"{node.weight:.2f}", node.ref, text_of(node.memory))
            for node in answer.nodes
            if node.HasField("memory")
        ),
    )
    if answer.edges:
        print()
        print_rows(
            ("from", "relation", "to", "strength", "why"),
            ((e.source, e.type, e.target, f"{e.strength:.2f}", e.context) for e in answer.edges),
        )
    if answer.truncated:
        note("There is more than this; raise --max-nodes.")
