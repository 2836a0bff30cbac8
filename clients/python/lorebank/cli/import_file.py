"""``lorebank import``."""

import hashlib
import sys
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, Literal
from uuid import UUID, uuid5

from cyclopts import App
from google.protobuf.json_format import Parse, ParseError
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from lorebank._batches import MAX_ITEMS
from lorebank._enums import enum_name
from lorebank._status import from_failure
from lorebank._writes import DEFAULT_BATCH_SIZE
from lorebank.cli.examples import examples
from lorebank.cli.failures import EXIT_FAILURE, UsageError, as_dict
from lorebank.cli.output import note, print_json, print_rows
from lorebank.cli.session import Own
from lorebank.cli.text import STDIN
from lorebank.errors import LorebankError
from lorebank.v1.memory_pb2 import Memory
from lorebank.v1.store_pb2 import BatchStoreResponse, StoreRequest, StoreResponse

_LINE_IDS: Final = UUID("6b1f2a52-7f2c-4f0e-9a53-8f0d1d0f7c11")


@dataclass(slots=True)
class _Tally:
    """What became of the lines so far; ``waiting`` holds the numbers of those that were sent."""

    results: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, LorebankError]] = field(default_factory=list)
    waiting: deque[int] = field(default_factory=deque)

    def settle(self, item: BatchStoreResponse.Item) -> None:
        """Count the answer to the line that has waited longest."""
        line = self.waiting.popleft()
        if item.HasField("failure"):
            self.fail(line, from_failure(item.failure))
        else:
            self.results[enum_name(StoreResponse.Result, item.response.result)] += 1

    def fail(self, line: int, error: LorebankError) -> None:
        """Count a line that was not stored."""
        self.failures.append((line, error))

    @property
    def done(self) -> int:
        """Number of lines answered or refused."""
        return self.results.total() + len(self.failures)


def register(app: App) -> None:
    """Add the command."""
    app.command(
        import_,
        name="import",
        help_epilogue=examples(
            "lorebank import memories.jsonl",
            "lorebank list --limit 0 --json | jq -c '.[]' | lorebank --server other:50051 import -",
        ),
    )


async def import_(
    source: str,
    /,
    *,
    on_duplicate: Literal["keep-both"] | None = None,
    batch_size: int = DEFAULT_BATCH_SIZE,
    session: Own,
) -> int:
    """Store memories from a file, one JSON object a line, with the fields of a memory as in get --json.

    Lines fail one by one, and the exit code is 1 when some did. It may be run again after a failure: what is there
    already is answered UNCHANGED, and with --on-duplicate keep-both the same line is not stored twice within 24 hours.

    Args:
        source: The file, in UTF-8; - reads standard input.
        on_duplicate: What to do with what is there already; keep-both stores it once more.
        batch_size: Most memories in one call, 1 to 500.
        session: The global options.
    """
    if not 1 <= batch_size <= MAX_ITEMS:
        raise UsageError(f"--batch-size must be from 1 to {MAX_ITEMS}.")
    tally = _Tally()
    stop: LorebankError | None = None
    with ExitStack() as stack:
        lines = _open(source, stack)
        requests = _requests(lines, tally, once=on_duplicate == "keep-both")
        progress = stack.enter_context(_progress())
        task = progress.add_task("stored", total=None)
        async with session.client() as client:
            try:
                async for item in client.store_many(requests, on_duplicate=on_duplicate, batch_size=batch_size):
                    tally.settle(item)
                    progress.update(task, completed=tally.done)
            except LorebankError as error:
                stop = error
    _print(tally, stopped=stop is not None, as_json=session.json)
    if stop is not None:
        raise stop
    return EXIT_FAILURE if tally.failures else 0


def _open(source: str, stack: ExitStack) -> BinaryIO:
    if source == STDIN:
        return sys.stdin.buffer
    try:
        return stack.enter_context(Path(source).open("rb"))
    except OSError as error:
        raise UsageError(f"{source} cannot be read: {error.strerror}") from error


def _requests(lines: BinaryIO, tally: _Tally, *, once: bool) -> Iterator[StoreRequest]:
    """The requests of the lines that are memories; blank lines are passed over.

    With ``once``, the request id follows from the line and from how often it came before.
    """
    seen: Counter[str] = Counter()
    for number, line in enumerate(lines, start=1):
        text = line.removeprefix(b"\xef\xbb\xbf").strip()
        if not text:
            continue
        try:
            request = StoreRequest(memory=Parse(text, Memory()))
        except (ParseError, UnicodeDecodeError) as error:
            reason = " ".join(str(error).split())
            tally.fail(number, LorebankError(f"this is no memory: {reason}", reason="NOT_A_MEMORY"))
            continue
        if once:
            digest = hashlib.sha256(text).hexdigest()
            seen[digest] += 1
            request.request_id = str(uuid5(_LINE_IDS, f"{digest}/{seen[digest]}"))
        tally.waiting.append(number)
        yield request


def _progress() -> Progress:
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.completed:.0f} lines"),
        BarColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def _print(tally: _Tally, *, stopped: bool, as_json: bool) -> None:
    counts = {"created": 0, "unchanged": 0} | dict(tally.results) | {"failed": len(tally.failures)}
    if as_json:
        failures = [{"line": line, **as_dict(error)} for line, error in tally.failures]
        print_json({**counts, "complete": not stopped, "failures": failures})
        return
    for line, error in tally.failures:
        note(f"line {line}: {error.message}")
    print_rows(("result", "memories"), [(name.upper(), str(count)) for name, count in counts.items()])
    if stopped:
        note("The import did not get to its end; the same command goes on where it stopped.")
