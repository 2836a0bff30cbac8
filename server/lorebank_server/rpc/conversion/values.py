"""Times, durations and free-form values."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY: Final = timedelta(days=1)
_NANOS_PER_MICROSECOND: Final = 1000


class _HasFields(Protocol):
    def HasField(self, field_name: Any) -> bool:  # noqa: N802 - protobuf's own name
        ...


def time_or_none(message: _HasFields, name: str) -> datetime | None:
    """The timestamp in the field ``name``, in UTC, or None when it is absent; nanoseconds are cut off."""
    return to_time(getattr(message, name)) if message.HasField(name) else None


def to_time(timestamp: Timestamp) -> datetime:
    """A timestamp in UTC, to the microsecond; nanoseconds are cut off."""
    return _EPOCH + timedelta(seconds=timestamp.seconds, microseconds=timestamp.nanos // _NANOS_PER_MICROSECOND)


def set_time(target: Timestamp, time: datetime | None) -> None:
    """Write a time that knows its zone into a field; None leaves the field absent."""
    if time is None:
        return
    since = time - _EPOCH
    # Setting even a zero makes the field present.
    target.seconds = since.days * 86_400 + since.seconds
    target.nanos = since.microseconds * _NANOS_PER_MICROSECOND


def to_days(duration: Duration) -> float:
    """A duration in days."""
    return timedelta(seconds=duration.seconds, microseconds=duration.nanos / _NANOS_PER_MICROSECOND) / _DAY


def set_days(target: Duration, days: float) -> None:
    """Write days into a field, to the microsecond."""
    exact = timedelta(days=days)
    target.seconds = exact.days * 86_400 + exact.seconds
    target.nanos = exact.microseconds * _NANOS_PER_MICROSECOND


def to_mapping(struct: Struct) -> dict[str, Any]:
    """The values of a struct; every number is a float, whole ones too."""
    return {name: _to_json(value) for name, value in struct.fields.items()}


def set_mapping(target: Struct, values: Mapping[str, Any]) -> None:
    """Write values into a field; an empty mapping leaves it absent."""
    if values:
        target.update(values)


def is_empty(message: Message, *, besides: Iterable[str] = ()) -> bool:
    """Whether no field of a message is set ``besides`` those named."""
    ignored = frozenset(besides)
    return all(field.name in ignored for field, _ in message.ListFields())


def _to_json(value: Value) -> Any:
    match value.WhichOneof("kind"):
        case "number_value":
            return value.number_value
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case "struct_value":
            return to_mapping(value.struct_value)
        case "list_value":
            return [_to_json(entry) for entry in value.list_value.values]
        case _:
            return None
