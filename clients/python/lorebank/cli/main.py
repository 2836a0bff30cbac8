"""The ``lorebank`` command: launcher, exit codes, and the order of the commands."""

import asyncio
import inspect
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Parameter

from lorebank._version import __version__
from lorebank.cli import (
    bench,
    change,
    demo,
    doctor,
    find,
    graph,
    import_file,
    keys,
    read,
    reindex,
    server_commands,
    spaces,
    store,
    vote,
)
from lorebank.cli.failures import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_USAGE, UsageError, exit_code, report
from lorebank.cli.session import Session
from lorebank.cli.text import STDIN
from lorebank.errors import LorebankError

_HELP = """Shared memory for AI agents: store facts, find them by meaning and words, say what they were worth.

Start a server with 'lorebank serve', then try 'lorebank demo'."""

_EPILOGUE = """Exit codes:
  0  done; finding nothing is no failure
  1  another failure, or some lines of an import
  2  the command line makes no sense
  3  not there, or not visible
  4  refused: a value, a state, a key that is taken, or a stale etag
  5  no good key, or a key that does not allow it
  6  the server is away or too slow

Output:
  On a terminal, tables; in a pipe, tab-separated lines without headings.
  With --json, one JSON document: the answer of the call as in the contract,
  or an array of items for list, history, spaces list and keys list. What
  fails is then one JSON object on standard error.

Global options may stand before or after the command; after -- all is text."""


def main() -> None:
    """Run the command line and exit with its code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line.

    Args:
        arguments: What follows the name of the program.

    Returns:
        The exit code; the answer went to standard output, and what failed to standard error.
    """
    launcher = _Launcher()
    try:
        result = launcher.app.meta(
            list(arguments), exit_on_error=False, print_error=False, result_action="return_value"
        )
    except (CycloptsError, UsageError, ValueError) as error:
        print(f"lorebank: {error}", file=sys.stderr)
        print("hint: 'lorebank --help' lists commands, 'lorebank COMMAND --help' explains one.", file=sys.stderr)
        return EXIT_USAGE
    except LorebankError as error:
        report(error, server=launcher.session.address, as_json=launcher.session.json)
        return exit_code(error)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has seen enough; the interpreter must not complain when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILURE
    return result if isinstance(result, int) else 0


class _Launcher:
    """Splits the global options from the command's own, and hands them to the command.

    Attributes:
        app: All commands; its ``meta`` is the entry.
        session: The global options, once they are read.
    """

    def __init__(self) -> None:
        self.session = Session()
        self.app = App(
            name="lorebank",
            help=_HELP,
            help_epilogue=_EPILOGUE,
            help_format="plaintext",
            version=f"lorebank {__version__}",
            default_parameter=Parameter(negative=(), show_default=_shown),
            suppress_keyboard_interrupt=False,
        )
        governing = (spaces, keys, server_commands, reindex, doctor, bench)
        for group in (store, find, read, change, vote, graph, import_file, *governing, demo):
            group.register(self.app)
        self.app.meta.default(self.launch)

    def launch(
        self,
        *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
        session: Annotated[Session, Parameter(name="*")] = Session(),  # noqa: B008 - frozen
    ) -> Any:
        """Run the command that ``tokens`` name."""
        self.session = session
        # The parser would take a lone hyphen for an option.
        words = [STDIN if word == "-" else word for word in tokens]
        command, bound, ignored = self.app.parse_args(words, exit_on_error=False, print_error=False)
        result = command(*bound.args, **bound.kwargs, **dict.fromkeys(ignored, session))
        return asyncio.run(result) if inspect.iscoroutine(result) else result


def _shown(default: object) -> str | None:
    return str(default) if default else None
