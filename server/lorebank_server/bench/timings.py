"""How long calls and their stages took, by the server's own spans."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from opentelemetry.proto.trace.v1.trace_pb2 import Span

FIND: Final = "lorebank.v1.MemoryService/Find"
OUTSIDE: Final = "outside of stages"

_PREFIX: Final = "lorebank."
_ALWAYS: Final = ("lorebank.embed", "lorebank.dense", "lorebank.rank")
"""Stages that every Find by meaning and words has."""

_ORDER: Final = ("embed", "plan", "lexical", "dense", "pending", "confirm", "fuse", "rank", "hydrate")
_NS_PER_MS: Final = 1e6


@dataclass(frozen=True, slots=True)
class Distribution:
    """Percentiles of one kind of duration, in milliseconds: the least value that so many of them do not exceed.

    Attributes:
        count: Durations that went in; the percentiles of none are 0.
    """

    name: str
    count: int
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class FindTimings:
    """What the spans say of some calls.

    Attributes:
        complete: Calls whose spans are all there.
        rpc: Whole calls inside of the server, from the first interceptor to the answer.
        stages: In the order of the work. A stage that runs twice in a call counts with the sum. Stages overlap, so that
            they add up to more than the call; what no stage covers comes last.
    """

    complete: int
    rpc: Distribution
    stages: tuple[Distribution, ...]


def distribution(name: str, values: Iterable[float]) -> Distribution:
    """The percentiles of some durations."""
    durations = np.fromiter(values, dtype=np.float64)
    if durations.size == 0:
        return Distribution(name, 0, 0.0, 0.0, 0.0)
    p50, p95, p99 = np.percentile(durations, [50, 95, 99], method="inverted_cdf")
    return Distribution(name, int(durations.size), float(p50), float(p95), float(p99))


def find_timings(spans: Iterable[Span], trace_ids: Collection[bytes]) -> FindTimings:
    """Put the spans of these calls together; a span that was sent twice counts once, and others do not count."""
    return _summed(_by_trace(spans, trace_ids))


def complete_calls(spans: Iterable[Span], trace_ids: Collection[bytes]) -> int:
    """How many of these calls have all their spans."""
    return sum(_is_complete(trace.values()) for trace in _by_trace(spans, trace_ids).values())


def _by_trace(spans: Iterable[Span], trace_ids: Collection[bytes]) -> dict[bytes, dict[bytes, Span]]:
    traces: dict[bytes, dict[bytes, Span]] = {trace_id: {} for trace_id in trace_ids}
    for span in spans:
        if span.trace_id in traces:
            traces[span.trace_id][span.span_id] = span
    return traces


def _is_complete(spans: Collection[Span]) -> bool:
    return {FIND, *_ALWAYS} <= {span.name for span in spans}


def _summed(traces: Mapping[bytes, Mapping[bytes, Span]]) -> FindTimings:
    calls: list[float] = []
    outside: list[float] = []
    stages: dict[str, list[float]] = {}
    complete = [trace.values() for trace in traces.values() if _is_complete(trace.values())]
    for spans in complete:
        (call,) = (span for span in spans if span.name == FIND)
        parts = [span for span in spans if span.name.startswith(_PREFIX) and span.name != FIND]
        calls.append(_ms(call))
        outside.append(_ms(call) - _covered_ms(parts))
        sums: dict[str, float] = {}
        for span in parts:
            name = span.name.removeprefix(_PREFIX)
            sums[name] = sums.get(name, 0.0) + _ms(span)
        for name, total in sums.items():
            stages.setdefault(name, []).append(total)
    rows = [distribution(name, stages[name]) for name in sorted(stages, key=_rank)]
    return FindTimings(len(complete), distribution("Find", calls), (*rows, distribution(OUTSIDE, outside)))


def _rank(stage: str) -> tuple[int, str]:
    return (_ORDER.index(stage) if stage in _ORDER else len(_ORDER), stage)


def _ms(span: Span) -> float:
    return (span.end_time_unix_nano - span.start_time_unix_nano) / _NS_PER_MS


def _covered_ms(spans: Sequence[Span]) -> float:
    """Time during which at least one of the spans runs."""
    covered, reached = 0, 0
    for span in sorted(spans, key=lambda span: span.start_time_unix_nano):
        begin = max(reached, span.start_time_unix_nano)
        covered += max(0, span.end_time_unix_nano - begin)
        reached = max(reached, span.end_time_unix_nano)
    return covered / _NS_PER_MS
