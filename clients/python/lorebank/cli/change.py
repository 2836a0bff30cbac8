"""``lorebank update``, ``delete``, ``undelete`` and ``supersede``."""

from pathlib import Path

from cyclopts import App
from google.protobuf.message import Message

from lorebank._fields import corrected_memory
from lorebank.cli.authoring import About, Corrected, given
from lorebank.cli.examples import examples
from lorebank.cli.failures import UsageError
from lorebank.cli.memories import text_of
from lorebank.cli.output import print_json, print_rows
from lorebank.cli.session import Own
from lorebank.cli.text import optional_text, read_text
from lorebank.v1.memory_pb2 import Memory


def register(app: App) -> None:
    """Add the commands."""
    app.command(
        update,
        help_epilogue=examples(
            'lorebank update a1B2c3D4 "Staging is wiped every Monday at 06:00 UTC." --reason "time was missing"',
            "lorebank update a1B2c3D4 --tag staging --tag database --clear title",
        ),
    )
    app.command(delete, help_epilogue=examples("lorebank delete a1B2c3D4", "lorebank delete a1B2c3D4 e5F6g7H8"))
    app.command(undelete, help_epilogue=examples("lorebank undelete a1B2c3D4"))
    app.command(
        supersede,
        help_epilogue=examples(
            'lorebank supersede a1B2c3D4 --by "Staging is wiped every night." --reason "new schedule"',
            "lorebank supersede a1B2c3D4 e5F6g7H8 --file merged.txt --category fact",
        ),
    )


async def update(
    id: str,
    text: str | None = None,
    /,
    *,
    file: Path | None = None,
    about: Corrected = None,
    clear: tuple[str, ...] = (),
    reason: str = "",
    etag: str = "",
    session: Own,
) -> None:
    """Correct a memory whose words were wrong. It keeps its id, and its history keeps the former words.

    When the world has changed, rather supersede it.

    Args:
        id: Its id.
        text: New text; - reads standard input.
        file: Read the new text from this file.
        about: New values; tags and keywords replace all former ones.
        clear: Field to empty, by its name in the contract, such as title or card.summary; may be repeated.
        reason: Why, for the history.
        etag: Change it only if it still has this etag.
        session: The global options.
    """
    values = given(about)
    content = optional_text(text, file, what="text")
    if content is not None:
        values["content"] = content
    if not values and not clear:
        raise UsageError("Say what to change: a new text, options such as --title, or --clear FIELD.")
    memory = corrected_memory(id, etag, values)  # type: ignore[arg-type] # the options have the fields' names
    async with session.client() as client:
        answer = await client.update(memory, mask=[*values, *clear], reason=reason)
    if session.json:
        print_json(answer)
        return
    changed = answer.memory.revision != answer.previous.revision
    _print("UPDATED" if changed else "UNCHANGED", [answer.memory])


async def delete(id: str, /, *more: str, etag: str = "", session: Own) -> None:
    """Hide memories. They can be brought back with undelete.

    Args:
        id: Id of a memory.
        more: Ids of further ones; they are deleted one by one, in order.
        etag: Delete it only if it still has this etag; for one memory.
        session: The global options.
    """
    if more and etag:
        raise UsageError("--etag goes with one memory.")
    async with session.client() as client:
        deleted = [await client.delete(memory_id, etag=etag) for memory_id in (id, *more)]
    _answer("DELETED", deleted, as_json=session.json)


async def undelete(id: str, /, *more: str, etag: str = "", session: Own) -> None:
    """Bring deleted memories back.

    Args:
        id: Id of a memory.
        more: Ids of further ones; they are brought back one by one, in order.
        etag: Bring it back only if it still has this etag; for one memory.
        session: The global options.
    """
    if more and etag:
        raise UsageError("--etag goes with one memory.")
    async with session.client() as client:
        restored = [await client.undelete(memory_id, etag=etag) for memory_id in (id, *more)]
    _answer("ACTIVE", restored, as_json=session.json)


async def supersede(
    *ids: str,
    by: str | None = None,
    file: Path | None = None,
    about: About = None,
    reason: str = "",
    session: Own,
) -> None:
    """Replace memories because the world has changed. The old ones stay readable and name the new one.

    Args:
        ids: Ids of 1 to 100 active memories.
        by: What is true now; - reads standard input, as does no text at all in a pipe.
        file: Read the new text from this file.
        about: What else to say of it.
        reason: Why the world has changed, for the history.
        session: The global options.
    """
    if not ids:
        raise UsageError("Say which memories to replace.")
    content = read_text(by, file, what="new text")
    async with session.client() as client:
        answer = await client.supersede(ids, content, reason=reason, **given(about))
    if session.json:
        print_json(answer)
        return
    _print("CREATED", [answer.memory])
    _print("SUPERSEDED", list(answer.superseded))


def _answer(result: str, memories: list[Memory], *, as_json: bool) -> None:
    if as_json:
        document: Message | list[Memory] = memories[0] if len(memories) == 1 else memories
        print_json(document)
    else:
        _print(result, memories)


def _print(result: str, memories: list[Memory]) -> None:
    print_rows(("result", "id", "text"), [(result, memory.id, text_of(memory)) for memory in memories])
