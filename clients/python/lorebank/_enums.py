"""Enum values by the names that people write: ``"team"`` for ``SCOPE_TEAM``, ``"keep-both"`` for its long form."""

from typing import Any, Literal, TypeAlias

KindName: TypeAlias = Literal["semantic", "procedural", "episodic"]
PolarityName: TypeAlias = Literal["positive", "negative"]
ScopeName: TypeAlias = Literal["user", "project", "team", "global"]
StateName: TypeAlias = Literal["proposed", "active", "superseded", "archived", "deleted", "rejected", "quarantined"]
ModeName: TypeAlias = Literal["hybrid", "semantic", "lexical"]
ViewName: TypeAlias = Literal["summary", "full"]
OnDuplicateName: TypeAlias = Literal["keep-both", "suggest", "skip", "merge", "replace"]
RoleName: TypeAlias = Literal["reader", "writer", "reviewer", "admin"]


def enum_number(enum: Any, value: str | int) -> Any:
    """Number of an enum's value.

    Args:
        enum: A generated enum.
        value: Its number, or its name without the prefix in any case, with hyphens or underscores.

    Raises:
        ValueError: The enum has no such value; the message lists those it has.
    """
    if isinstance(value, int):
        return value
    prefix = _prefix(enum)
    name = prefix + value.upper().replace("-", "_")
    if name not in enum.keys():  # noqa: SIM118 - the generated wrapper is no mapping
        choices = ", ".join(enum_name(enum, number) for number in enum.values() if number)
        raise ValueError(f"{value!r} is no {enum.DESCRIPTOR.name}; choose one of: {choices}")
    return enum.Value(name)


def enum_name(enum: Any, number: int) -> str:
    """Name of an enum's value as people write it; its number where this version does not know it."""
    if number not in enum.values():
        return str(number)
    name: str = enum.Name(number)
    return name.removeprefix(_prefix(enum)).lower().replace("_", "-")


def _prefix(enum: Any) -> str:
    zero: str = enum.Name(0)
    return zero.removesuffix("UNSPECIFIED")
