"""Every payload field of a point: its name, its index, where its value comes from, and what it filters.

A new field is a new entry in ``FIELDS`` and nothing else. Points written before it existed are recognised by
``incomplete`` and written again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from qdrant_client import models

from lorebank_server.domain.selector import Selector
from lorebank_server.ports.vector_store import StoredVersion, VectorPoint

Conditions = list[models.Condition]

NEVER: Final = datetime.max.replace(tzinfo=UTC)
"""Stands for a moment that does not come, so that one comparison is enough."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """All that a search asks of a point's payload. Scopes and project of the selector are in the buckets."""

    space_id: int
    buckets: Sequence[int]
    selector: Selector
    now: datetime


@dataclass(frozen=True, slots=True)
class Field:
    """One payload field.

    Attributes:
        index: How Qdrant indexes it.
        value: What a point has there.
        conditions: What a search asks of the field, whose name it is given; all of it must hold.
    """

    name: str
    index: models.KeywordIndexParams | models.IntegerIndexParams | models.DatetimeIndexParams
    value: Callable[[VectorPoint], Any]
    conditions: Callable[[str, Wanted], Conditions]


def _equal(key: str, value: str | int) -> Conditions:
    return [models.FieldCondition(key=key, match=models.MatchValue(value=value))]


def _any_of(key: str, values: Sequence[str] | Sequence[int]) -> Conditions:
    """Nothing when there are no values: they do not narrow then."""
    wanted: Any = list(values)  # all texts or all numbers, which a sequence of either cannot say
    return [models.FieldCondition(key=key, match=models.MatchAny(any=wanted))] if values else []


def _later(key: str, moment: datetime) -> Conditions:
    return [models.FieldCondition(key=key, range=models.DatetimeRange(gt=moment))]


def _created(key: str, wanted: Wanted) -> Conditions:
    after, before = wanted.selector.created_after, wanted.selector.created_before
    if after is None and before is None:
        return []
    return [models.FieldCondition(key=key, range=models.DatetimeRange(gte=after, lt=before))]


def _tagged(key: str, wanted: Wanted) -> Conditions:
    every = [condition for tag in wanted.selector.tags_all for condition in _equal(key, tag)]
    return every + _any_of(key, wanted.selector.tags_any)


def _numbers(values: Sequence[int]) -> list[int]:
    return [int(value) for value in values]


def _time(moment: datetime | None) -> str:
    return (moment or NEVER).astimezone(UTC).isoformat(timespec="microseconds")


def _nothing(_key: str, _wanted: Wanted) -> Conditions:
    return []


_KEYWORD: Final = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD)
_TENANT: Final = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
_NUMBER: Final = models.IntegerIndexParams(type=models.IntegerIndexType.INTEGER, lookup=True, range=False)
_AMOUNT: Final = models.IntegerIndexParams(type=models.IntegerIndexType.INTEGER, lookup=False, range=True)
_TIME: Final = models.DatetimeIndexParams(type=models.DatetimeIndexType.DATETIME)

FIELDS: Final[tuple[Field, ...]] = (
    Field("space", _TENANT, lambda p: str(p.space_id), lambda key, w: _equal(key, str(w.space_id))),
    Field("bucket", _NUMBER, lambda p: p.bucket_id, lambda key, w: _any_of(key, w.buckets)),
    Field("state", _NUMBER, lambda p: int(p.state), lambda key, w: _any_of(key, _numbers(w.selector.states))),
    Field(
        "stale_time",
        _TIME,
        lambda p: _time(p.stale_time),
        lambda key, w: [] if w.selector.include_stale else _later(key, w.now),
    ),
    Field("valid_until", _TIME, lambda p: _time(p.valid_until), lambda key, w: _later(key, w.now)),
    Field("kind", _NUMBER, lambda p: int(p.kind), lambda key, w: _any_of(key, _numbers(w.selector.kinds))),
    Field(
        "polarity",
        _NUMBER,
        lambda p: int(p.polarity),
        lambda key, w: _equal(key, int(w.selector.polarity)) if w.selector.polarity else [],
    ),
    Field("category", _KEYWORD, lambda p: p.category, lambda key, w: _any_of(key, w.selector.categories)),
    Field("collection", _KEYWORD, lambda p: p.collection, lambda key, w: _any_of(key, w.selector.collections)),
    Field(
        "subject",
        _KEYWORD,
        lambda p: list(dict.fromkeys((p.subject, p.subject.lower()))),
        lambda key, w: _any_of(key, w.selector.subjects),
    ),
    Field("tags", _KEYWORD, lambda p: list(p.tags), _tagged),
    Field("agent", _KEYWORD, lambda p: p.agent, lambda key, w: _any_of(key, w.selector.agents)),
    Field("run", _KEYWORD, lambda p: p.run, lambda key, w: _any_of(key, w.selector.runs)),
    Field("owner", _KEYWORD, lambda p: p.owner, lambda key, w: _any_of(key, w.selector.owners)),
    Field("id", _KEYWORD, lambda p: p.id, lambda key, w: _any_of(key, w.selector.ids)),
    Field("create_time", _TIME, lambda p: _time(p.create_time), _created),
    Field("version", _AMOUNT, lambda p: p.version, _nothing),
    Field("fields", _AMOUNT, lambda _: len(FIELDS), _nothing),
)

STORED_VERSION: Final = ["space", "version"]
"""The fields that ``stored_version`` reads."""


def payload_of(point: VectorPoint) -> dict[str, Any]:
    """The payload of a point, without its vector."""
    return {field.name: field.value(point) for field in FIELDS}


def stored_version(record: models.Record) -> StoredVersion:
    """What a stored point tells of itself."""
    payload = record.payload or {}
    return StoredVersion(uid=UUID(str(record.id)), space_id=int(payload["space"]), version=int(payload["version"]))


def matching(wanted: Wanted) -> models.Filter:
    """What a point must meet to be found: what the SQL function ``dense_candidates_selected`` asks of a memory.

    Buckets and states must not be empty, for then nothing is to be found.
    """
    return models.Filter(must=[condition for field in FIELDS for condition in field.conditions(field.name, wanted)])


def in_space(space_id: int) -> models.Filter:
    """All points of one space."""
    return models.Filter(must=_equal("space", str(space_id)))


def not_newer(points: Sequence[VectorPoint]) -> models.Filter:
    """Those of these points that are stored in the version given or an earlier one.

    The same version passes, so that a point can be written again when fields were added.
    """
    return models.Filter(
        should=[
            models.Filter(
                must=[
                    models.HasIdCondition(has_id=[str(point.uid)]),
                    models.FieldCondition(key="version", range=models.Range(lte=point.version)),
                ]
            )
            for point in points
        ]
    )


def incomplete() -> models.Filter:
    """Points that were written when there were fewer fields."""
    return models.Filter(must=[models.FieldCondition(key="fields", range=models.Range(lt=len(FIELDS)))])
