"""``lorebank doctor``: whether all is well with a server, and what to do where it is not."""

import asyncio
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from time import monotonic
from typing import Any, Final

from cyclopts import App

from lorebank._version import __version__
from lorebank.cli.examples import examples
from lorebank.cli.failures import EXIT_FAILURE
from lorebank.cli.output import as_dict, print_json, print_rows
from lorebank.cli.session import Own
from lorebank.client import AsyncClient
from lorebank.errors import DeadlineExceeded, LorebankError, PermissionDenied, Unauthenticated, Unavailable
from lorebank.v1.maintenance_pb2 import CheckIntegrityResponse
from lorebank.v1.space_pb2 import Space

REPAIR_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.5

WORRYING_LAG: Final = timedelta(seconds=30)
"""Age of a change that the index should long have taken in."""

_REPAIR: Final = "run 'lorebank doctor --repair'"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at.

    Attributes:
        remedy: What to do; empty when all is well.
    """

    part: str
    well: bool
    meaning: str
    remedy: str = ""


def register(app: App) -> None:
    """Add the command."""
    app.command(doctor, help_epilogue=examples("lorebank doctor", "lorebank doctor --repair --json"))


async def doctor(*, repair: bool = False, session: Own) -> int:
    """Say whether all is well: server, database, vector index, model, and every memory's vector. Needs an admin's key.

    Args:
        repair: Put right what differs, and wait up to a minute until it is.
        session: The global options.
    """
    findings: list[Finding] = []
    integrity: CheckIntegrityResponse | None = None
    async with session.client() as client:
        try:
            space = await client.spaces.get()
            findings.append(Finding("server", well=True, meaning=f"answers at {session.server}"))
            findings.append(_about_model(space))
            integrity = await _checked(client, repair=repair)
            findings.extend(about(integrity))
        except LorebankError as error:
            findings.append(_failure(error, session.server))
    well = all(finding.well for finding in findings)
    if session.json:
        print_json(_document(findings, integrity, well=well))
    else:
        print_rows(
            ("part", "", "what was found"),
            [(found.part, "ok" if found.well else "PROBLEM", _sentence(found)) for found in findings],
        )
    return 0 if well else EXIT_FAILURE


def about(found: CheckIntegrityResponse) -> Iterator[Finding]:
    """What an integrity check says, in plain words."""
    yield _about_version(found.server_version)
    yield Finding("postgres", well=True, meaning=f"version {found.postgres_version}, schema {found.schema}")
    yield _about_index(found)
    waiting, unexplained = found.unembedded, max(0, found.missing - found.unembedded)
    yield Finding(
        "vectors",
        well=not (found.missing or found.orphaned or found.outdated),
        meaning=f"{found.memories} memories, {found.vectors} vectors"
        + (f", {unexplained} missing" if unexplained else "")
        + (f", {found.outdated} of an earlier revision" if found.outdated else "")
        + (f", {found.orphaned} of no memory" if found.orphaned else ""),
        remedy=_REPAIR if unexplained or found.orphaned or found.outdated else "",
    )
    if waiting:
        yield Finding(
            "embedding",
            well=False,
            meaning=f"{waiting} memories wait for the embedding model and are found by their words only",
            remedy="see whether the embedding model answers; they are embedded as soon as it does",
        )
    if found.repaired:
        yield Finding("repair", well=True, meaning=f"{found.repaired} differences put right")


def _about_version(server: str) -> Finding:
    if server.split(".")[:2] == __version__.split(".")[:2]:
        return Finding("version", well=True, meaning=f"server {server}, this command {__version__}")
    return Finding(
        "version",
        well=False,
        meaning=f"the server is {server}, this command {__version__}",
        remedy="install the same version on both sides",
    )


def _about_index(found: CheckIntegrityResponse) -> Finding:
    lag = found.index_lag.ToTimedelta()
    behind = f", {found.pending} writes behind, the oldest for {lag.total_seconds():.0f} s" if found.pending else ""
    late = lag > WORRYING_LAG
    return Finding(
        "index",
        well=not late,
        meaning=f"{found.index}{behind}",
        remedy="see whether the vector store answers and takes writes; the server's log says why not" if late else "",
    )


def _about_model(space: Space) -> Finding:
    return Finding("model", well=True, meaning=f"{space.embedding.model}, {space.embedding.dimensions} dimensions")


async def _checked(client: AsyncClient, *, repair: bool) -> CheckIntegrityResponse:
    """What a check says; after a repair, what it says once nothing differs any more, or time is up."""
    found = await client.spaces.check_integrity(repair=repair)
    repaired, deadline = found.repaired, monotonic() + REPAIR_TIMEOUT_S
    while repaired and monotonic() < deadline:
        found = await client.spaces.check_integrity()
        if not (found.missing or found.orphaned or found.outdated or found.pending):
            break
        await asyncio.sleep(_POLL_S)
    found.repaired = repaired
    return found


def _failure(error: LorebankError, server: str) -> Finding:
    if error.reason.startswith("VECTOR_INDEX"):
        return Finding(
            "index", well=False, meaning=error.message, remedy="see whether Qdrant runs, and check LOREBANK_QDRANT_URL"
        )
    if error.reason == "STORAGE_UNAVAILABLE":
        return Finding("postgres", well=False, meaning=error.message, remedy="see whether Postgres runs")
    if isinstance(error, Unavailable | DeadlineExceeded) and not error.reason:
        return Finding(
            "server",
            well=False,
            meaning=f"nothing answers at {server}",
            remedy="start it with 'lorebank serve', name another with --server, or give it more time with --timeout",
        )
    if isinstance(error, Unauthenticated | PermissionDenied):
        return Finding("key", well=False, meaning=error.message, remedy="set LOREBANK_API_KEY to an admin's key")
    return Finding("server", well=False, meaning=error.message, remedy="see the server's log")


def _sentence(finding: Finding) -> str:
    return f"{finding.meaning}; {finding.remedy}." if finding.remedy else f"{finding.meaning}."


def _document(findings: list[Finding], integrity: CheckIntegrityResponse | None, *, well: bool) -> dict[str, Any]:
    return {
        "well": well,
        "findings": [asdict(finding) for finding in findings],
        "integrity": as_dict(integrity) if integrity is not None else None,
    }
