"""Between rows and domain values."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from lorebank_server.domain import quality
from lorebank_server.domain.memory import Draft, Memory, State, Usage
from lorebank_server.domain.quality import Quality, Standing
from lorebank_server.domain.space import Space

FOREVER = datetime.max.replace(tzinfo=UTC)
"""How the driver reads and writes Postgres's ``infinity``."""


def encode_draft(draft: Draft) -> str:
    """The JSON of a draft, without what is empty or at its default."""
    values = msgspec.to_builtins(draft, str_keys=True, builtin_types=(datetime,), enc_hook=None)
    # Every float is an author's claim, and a claim of 0 is not the absence of one.
    kept = {name: value for name, value in values.items() if value or isinstance(value, float)}
    return msgspec.json.encode(kept).decode()


def decode_draft(text: str) -> Draft:
    """The draft of a JSON text written by ``encode_draft``."""
    return msgspec.json.decode(text, type=Draft)


def space_from(row: Mapping[str, Any]) -> Space:
    """A space from its row."""
    return Space(
        number=row["number"],
        id=row["id"],
        display_name=row["display_name"],
        revision=row["revision"],
        half_life_days=row["half_life_days"],
        default_confidence=row["default_confidence"],
        stale_threshold=row["stale_threshold"],
        quality_policy=row["quality_policy"],
        language=row["language"],
        embedding_model=row["embedding_model"] or 0,
    )


def standing_from(row: Mapping[str, Any], policy: str) -> Standing:
    """The stored part of a memory's quality."""
    return Standing(
        policy=policy,
        reputation=row["reputation"],
        half_life_days=row["half_life_days"],
        reference_time=row["reference_time"],
        upvotes=row["upvotes"],
        downvotes=row["downvotes"],
        citations=row["citations"],
        successes=row["successes"],
        failures=row["failures"],
    )


def quality_from(row: Mapping[str, Any], space: Space, now: datetime) -> Quality:
    """Quality at ``now``."""
    standing = standing_from(row, space.quality_policy)
    return quality.assess(standing, now=now, stale_threshold=space.stale_threshold)


def memory_from(row: Mapping[str, Any], space: Space, now: datetime) -> Memory:
    """A memory from a row of the view that ``memories.sql`` selects."""
    return Memory(
        id=row["id"],
        uid=row["uid"],
        draft=decode_draft(row["body"]),
        owner=row["owner"],
        state=State(row["state"]),
        revision=row["revision"],
        quality=quality_from(row, space, now),
        usage=Usage(row["use_count"] or 0, row["last_used_time"]),
        content_hash=row["content_hash"].hex(),
        create_time=row["create_time"],
        update_time=row["update_time"],
        validate_time=row["validate_time"],
        delete_time=row["delete_time"],
        supersedes=tuple(row["supersedes"] or ()),
        superseded_by=row["superseded_by_id"] or "",
    )


def never(moment: datetime | None) -> datetime:
    """``infinity`` in place of None."""
    return FOREVER if moment is None else moment
