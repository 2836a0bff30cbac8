"""Failures in words that help, and the exit codes that go with them."""

import json
import sys
from typing import Any, Final

import grpc

from lorebank.errors import DeadlineExceeded, LorebankError, Unavailable

EXIT_FAILURE: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130

_EXIT_CODES: Final[dict[grpc.StatusCode, int]] = {
    grpc.StatusCode.NOT_FOUND: 3,
    grpc.StatusCode.INVALID_ARGUMENT: 4,
    grpc.StatusCode.FAILED_PRECONDITION: 4,
    grpc.StatusCode.ALREADY_EXISTS: 4,
    grpc.StatusCode.ABORTED: 4,
    grpc.StatusCode.UNAUTHENTICATED: 5,
    grpc.StatusCode.PERMISSION_DENIED: 5,
    grpc.StatusCode.UNAVAILABLE: 6,
    grpc.StatusCode.DEADLINE_EXCEEDED: 6,
}


_HINTS: Final[dict[grpc.StatusCode, str]] = {
    grpc.StatusCode.DEADLINE_EXCEEDED: "allow more time with --timeout; what was to be written may be there.",
    grpc.StatusCode.UNAUTHENTICATED: "set LOREBANK_API_KEY to a key that 'lorebank keys create' has shown.",
    grpc.StatusCode.PERMISSION_DENIED: "use a key with a higher role; 'lorebank keys list' shows who may do what.",
    grpc.StatusCode.UNIMPLEMENTED: "this server does not serve that call; a newer one may.",
}
_HINTS_WITHOUT_ANSWER: Final[dict[grpc.StatusCode, str]] = {
    grpc.StatusCode.UNAVAILABLE: "start one with 'lorebank serve', or name another with --server or LOREBANK_SERVER.",
    grpc.StatusCode.INVALID_ARGUMENT: "client and server may be of different versions.",
}


class UsageError(Exception):
    """The command line asks for something that makes no sense."""


def exit_code(error: LorebankError) -> int:
    """The exit code of a failed call."""
    return _EXIT_CODES.get(error.code, EXIT_FAILURE)


def report(error: LorebankError, *, server: str, as_json: bool) -> None:
    """Say on standard error what failed and what to do, as text or as one JSON object."""
    if as_json:
        print(json.dumps({"error": as_dict(error)}, ensure_ascii=False), file=sys.stderr)
        return
    print(f"lorebank: {_message(error, server)}", file=sys.stderr)
    for violation in error.violations:
        if violation.description not in error.message:
            print(f"  {violation.field}: {violation.description}", file=sys.stderr)
    hint = _hint(error)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)


def as_dict(error: LorebankError) -> dict[str, Any]:
    """The error as it stands in JSON."""
    return {
        "code": error.code.name,
        "reason": error.reason,
        "message": error.message,
        "metadata": dict(error.metadata),
        "violations": [{"field": entry.field, "description": entry.description} for entry in error.violations],
    }


def _message(error: LorebankError, server: str) -> str:
    if error.reason:
        return error.message
    if isinstance(error, Unavailable):
        return f"Nothing answers at {server} ({error.message})."
    if isinstance(error, DeadlineExceeded):
        return f"{server} did not answer in time."
    return f"{error.code.name}: {error.message}"


def _hint(error: LorebankError) -> str:
    successor = error.metadata.get("superseded_by", "")
    if successor:
        return f"see what took its place with 'lorebank get {successor}'."
    return (_HINTS if error.reason else _HINTS_WITHOUT_ANSWER | _HINTS).get(error.code, "")
