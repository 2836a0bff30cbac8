"""``lorebank store``."""

from pathlib import Path
from typing import Literal

from cyclopts import App

from lorebank._enums import enum_name
from lorebank.cli.authoring import About, given, links
from lorebank.cli.examples import examples
from lorebank.cli.memories import print_memories, text_of
from lorebank.cli.output import note, print_json, print_rows
from lorebank.cli.session import Own
from lorebank.cli.text import read_text
from lorebank.v1.store_pb2 import StoreResponse


def register(app: App) -> None:
    """Add the command."""
    app.command(
        store,
        help_epilogue=examples(
            'lorebank store "The staging database is wiped every Monday." --tag staging',
            'lorebank store "We deploy with Argo since March." --category fact --project shop --scope team',
            "git log -1 --format=%B | lorebank store --subject shop --link related_to:a1B2c3D4",
            "lorebank store --file lesson.txt --dry-run",
        ),
    )


async def store(
    text: str | None = None,
    /,
    *,
    file: Path | None = None,
    about: About = None,
    link: tuple[str, ...] = (),
    on_duplicate: Literal["keep-both"] | None = None,
    dry_run: bool = False,
    request_id: str | None = None,
    session: Own,
) -> None:
    """Remember one thing: a fact, preference, way or warning that can be understood alone.

    What is there already, word for word, is not stored again but answered UNCHANGED with its id.

    Args:
        text: The fact, 5 to 8192 characters; - reads standard input, as does no text at all in a pipe.
        file: Read the text from this file.
        about: What else to say of it.
        link: Relation to another memory, as type:id; may be repeated.
        on_duplicate: What to do when it is there already; keep-both stores it once more.
        dry_run: Say what would happen, and write nothing.
        request_id: UUID under which a repeat within 24 hours writes nothing.
        session: The global options.
    """
    content = read_text(text, file, what="text")
    async with session.client() as client:
        answer = await client.store(
            content,
            links=links(link),
            on_duplicate=on_duplicate,
            validate_only=dry_run,
            request_id=request_id,
            **given(about),
        )
    if session.json:
        print_json(answer)
        return
    _print(answer, dry_run=dry_run)


def _print(answer: StoreResponse, *, dry_run: bool) -> None:
    result = enum_name(StoreResponse.Result, answer.result).upper()
    print_rows(
        ("result", "id", "text"),
        [(f"would be {result}" if dry_run else result, answer.memory.id or "-", text_of(answer.memory))],
    )
    for warning in answer.warnings:
        note(f"warning: {warning}")
    if answer.neighbors:
        note("It resembles:")
        print_memories([neighbor.memory for neighbor in answer.neighbors])
