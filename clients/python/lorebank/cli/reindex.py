"""``lorebank reindex``."""

from collections.abc import Coroutine
from typing import Any

from cyclopts import App
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from lorebank.cli.examples import examples
from lorebank.cli.failures import UsageError
from lorebank.cli.output import note, print_json, print_rows
from lorebank.cli.server_package import server_module
from lorebank.cli.session import Own
from lorebank.v1.maintenance_pb2 import ReindexResponse

FINISHED = "finished"


def register(app: App) -> None:
    """Add the command."""
    app.command(
        reindex,
        help_epilogue=examples(
            "lorebank reindex                            (builds the vector index again)",
            "lorebank reindex --model NAME               (moves the space to another embedding model)",
            "LOREBANK_EMBEDDING_URL=... LOREBANK_EMBEDDING_MODEL=NAME lorebank reindex --direct",
        ),
    )


def reindex(*, model: str = "", direct: bool = False, session: Own) -> int | Coroutine[Any, Any, None]:
    """Build the vectors of a space again, with the same embedding model or another, while the server serves.

    To change the model without stopping: start the server with the other model in the LOREBANK_NEXT_EMBEDDING_*
    settings (the one that comes with Lorebank needs none), run this with --model for each space, then make that model
    the first by the LOREBANK_EMBEDDING_* settings. Searches use the former vectors until the new ones are complete.

    What is done stays done: after a failure, or Ctrl-C, the same command goes on. Needs an admin's key.

    Args:
        model: Name of the model to move the space to, one of those the server has; default: the present one, whose
            vectors are kept.
        direct: Do without a server: embed the memories of all spaces with the model that the LOREBANK_EMBEDDING_*
            settings name here, straight in the database, while no server runs on it.
        session: The global options.
    """
    if not direct:
        return _online(model, session)
    if model:
        raise UsageError("--direct takes the model from the LOREBANK_EMBEDDING_* settings; leave out --model.")
    code: int = server_module("lorebank_server.app").reindex_command()
    return code


async def _online(model: str, session: Own) -> None:
    last = ReindexResponse()
    tasks: dict[str, TaskID] = {}
    try:
        with _progress() as progress:
            async with session.client() as client:
                async for last in client.spaces.reindex(model=model):
                    if last.phase not in tasks:
                        tasks[last.phase] = progress.add_task(last.phase, total=None)
                    progress.update(tasks[last.phase], completed=last.done, total=last.total or None)
                space = await client.spaces.get()
    finally:
        if last.phase not in {"", FINISHED}:
            note("The reindexing did not get to its end; the same command goes on where it stopped.")
    if session.json:
        print_json(last)
    else:
        print_rows(("result", "memories", "model"), [("REINDEXED", str(last.done), space.embedding.model)])


def _progress() -> Progress:
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
