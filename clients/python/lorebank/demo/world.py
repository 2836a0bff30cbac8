"""The example memories: five small worlds, as data files beside this module."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any

from google.protobuf import json_format

from lorebank.v1.memory_pb2 import Memory

WORLDS = ("support", "developer", "errors", "people", "services")


@dataclass(frozen=True, slots=True)
class Link:
    """A relation between two example memories, by their natural keys."""

    source_key: str
    type: str
    target_key: str
    strength: float
    context: str


@dataclass(frozen=True, slots=True)
class ChangedFact:
    """A fact that took the place of an older one."""

    supersedes_key: str
    reason: str
    memory: Memory


@dataclass(frozen=True, slots=True)
class Question:
    """Something to ask, and the natural key of the memory that answers it."""

    query: str
    expect_key: str
    why: str


def memories(world: str) -> list[Memory]:
    """The memories of one world, in the order of its file."""
    return [json_format.ParseDict(line, Memory()) for line in _lines(world)]


def links() -> list[Link]:
    """Relations among the services and errors."""
    return [Link(**line) for line in _lines("links")]


def changes() -> list[ChangedFact]:
    """What became of facts that were true once."""
    return [
        ChangedFact(line["supersedes_key"], line["reason"], json_format.ParseDict(line["memory"], Memory()))
        for line in _lines("changes")
    ]


def questions() -> list[Question]:
    """Questions with their answers, half in other words than the memory uses, half by its very words."""
    return [Question(line["query"], line["expect_key"], line["why"]) for line in _lines("questions")]


def _lines(name: str) -> Iterator[dict[str, Any]]:
    text = (resources.files(__package__) / "data" / f"{name}.jsonl").read_text(encoding="utf-8")
    return (json.loads(line) for line in text.splitlines() if line.strip())
