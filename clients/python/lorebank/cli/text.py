"""Where the text of a memory comes from: the command line, a file or standard input."""

import sys
from pathlib import Path
from typing import Final

from lorebank.cli.failures import UsageError

STDIN: Final = "\0"
"""Stands for a lone hyphen among the arguments; no argument of a process can be this."""


def read_text(argument: str | None, file: Path | None, *, what: str) -> str:
    """The text, without the line breaks at its end.

    Args:
        argument: The text itself, STDIN, or None to read a file, or standard input where something is piped in.
        file: File to read, in UTF-8.
        what: Name of the text in errors.

    Raises:
        UsageError: There is no text, there are two, or it cannot be read.
    """
    text = optional_text(argument, file, what=what)
    if text is None and not sys.stdin.isatty():
        text = _from_stdin(what)
    if not text:
        raise UsageError(f"There is no {what}: give it as an argument, with --file FILE, or pipe it in.")
    return text


def optional_text(argument: str | None, file: Path | None, *, what: str) -> str | None:
    """As ``read_text``, but None without argument and file, whatever is piped in."""
    if argument is not None and file is not None:
        raise UsageError(f"Give the {what} or --file, not both.")
    if file is not None:
        try:
            return file.read_text("utf-8").rstrip("\r\n")
        except OSError as error:
            raise UsageError(f"{file} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise UsageError(f"{file} is no UTF-8 text.") from error
    return _from_stdin(what) if argument == STDIN else argument


def _from_stdin(what: str) -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"The {what} on standard input is no UTF-8 text.") from error
