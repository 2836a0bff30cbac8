"""What was measured, as a page of Markdown that reads well on a terminal too, and as data."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lorebank_server.bench.measurement import BOUND_MS, Step, Verdict
from lorebank_server.bench.timings import Distribution


@dataclass(frozen=True, slots=True)
class Run:
    """A measurement from beginning to end.

    Attributes:
        title: What was measured, in a few words.
        facts: What was measured on what: names and values in the order of the page.
        steps: By rate, slowest first.
        judged: The step that the verdict is about.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    steps: tuple[Step, ...]
    judged: Step
    verdict: Verdict


def as_document(run: Run) -> dict[str, Any]:
    """Everything of a run as JSON has it; durations in milliseconds, memory in MiB."""
    return {
        "facts": dict(run.facts),
        "steps": [asdict(step) | {"answered": step.answered} for step in run.steps],
        "verdict": {"rate": run.judged.rate, "bound_ms": BOUND_MS, **asdict(run.verdict)},
    }


def render(run: Run) -> str:
    """The page, whose last line is the verdict."""
    lines = ["# Latency of Find", "", *(f"- {name}: {value}" for name, value in run.facts), ""]
    for step in run.steps:
        lines += [f"## {step.rate:g} calls a second", "", *_durations(step), "", *_counts(step), ""]
    if len(run.steps) > 1:
        lines += ["## All rates", "", *_overview(run.steps), ""]
    return "\n".join([*lines, run.verdict.text])


def _durations(step: Step) -> Iterable[str]:
    inside = [_times(f"- {stage.name}", stage) for stage in step.find.stages]
    rows = [_times("Find, by its spans", step.find.rpc), *inside, _times("for callers, from when due", step.callers)]
    return _table(("milliseconds", "calls", "p50", "p95", "p99"), rows)


def _times(name: str, times: Distribution) -> tuple[str, ...]:
    return name, str(times.count), f"{times.p50:.2f}", f"{times.p95:.2f}", f"{times.p99:.2f}"


def _counts(step: Step) -> Iterable[str]:
    failures = ", ".join(f"{number} {code}" for code, number in sorted(step.failures.items())) or "none failed"
    yield f"- Calls: {step.sent} sent, {step.answered} answered ({step.throughput:.1f}/s), {failures}."
    yield f"- Answers: {step.degraded} degraded, {step.empty} without a memory."
    yield f"- Spans: whole for {step.find.complete} of {step.answered} answered calls."
    yield f"- Sent after they were due: p95 {step.held_back.p95:.1f} ms, p99 {step.held_back.p99:.1f} ms."
    for used in step.usage:
        yield f"- Used by {used.name}: {used.cores:.2f} cores, {used.memory_mib:.0f} MiB."


def _overview(steps: Iterable[Step]) -> Iterable[str]:
    rows = [
        (
            f"{step.rate:g}",
            f"{step.throughput:.1f}",
            *_times("", step.find.rpc)[2:],
            f"{step.callers.p95:.2f}",
            str(sum(step.failures.values())),
            *(f"{used.cores:.2f}" for used in step.usage),
        )
        for step in steps
    ]
    names = [f"cores {used.name}" for step in list(steps)[:1] for used in step.usage]
    return _table(("rate", "answered/s", "p50 ms", "p95 ms", "p99 ms", "callers p95 ms", "failed", *names), rows)


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterable[str]:
    """Names to the left, figures to the right, columns below each other."""
    widths = [max(map(len, column)) for column in zip(heading, *rows, strict=True)]
    yield _row(heading, widths)
    yield (
        "| " + " | ".join("-" * (width - (place > 0)) + ":" * (place > 0) for place, width in enumerate(widths)) + " |"
    )
    for row in rows:
        yield _row(row, widths)


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        cell.rjust(width) if place else cell.ljust(width)
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return f"| {' | '.join(padded)} |"
