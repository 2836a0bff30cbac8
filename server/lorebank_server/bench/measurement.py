"""One rate after the other: what callers saw, what the spans say, and whether it is fast enough."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final

from lorebank_server.bench.load_generator import Call, LoadGenerator, poisson_arrivals
from lorebank_server.bench.otlp_receiver import OtlpReceiver
from lorebank_server.bench.processes import Meter, Usage
from lorebank_server.bench.timings import Distribution, FindTimings, complete_calls, distribution, find_timings

BOUND_MS: Final = 100.0
"""What the 95th percentile of Find has to stay below."""

SPANS_TIMEOUT_S: Final = 15.0
_POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Step:
    """What happened at one rate.

    Attributes:
        rate: Calls a second that were due.
        sent: Calls that were sent; all of them have ended.
        failures: Statuses other than OK, with their number.
        empty: Answers without a memory.
        degraded: Answers that say that something did not work.
        throughput: Answers a second, from the first due call to the last end.
        find: What the spans say of the answered calls.
        callers: Latency of the answered calls for their callers, from when they were due.
        held_back: How long after it was due a call was sent, for all calls.
        usage: By group of processes.
    """

    rate: float
    sent: int
    failures: Mapping[str, int]
    empty: int
    degraded: int
    throughput: float
    find: FindTimings
    callers: Distribution
    held_back: Distribution
    usage: tuple[Usage, ...]

    @property
    def answered(self) -> int:
        """Calls that were answered."""
        return self.sent - sum(self.failures.values())


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a step kept the bound, in one line."""

    kept: bool
    text: str


class Measurement:
    """Steps on one server whose spans arrive at one receiver."""

    def __init__(
        self, generator: LoadGenerator, receiver: OtlpReceiver, meter: Meter, *, queries: Iterator[str], seed: int
    ) -> None:
        self._generator = generator
        self._receiver = receiver
        self._meter = meter
        self._queries = queries
        self._seed = seed

    async def warm_up(self, *, rate: float, duration_s: float, concurrency: int) -> None:
        """Calls that nobody measures: connections, plans and caches."""
        arrivals = poisson_arrivals(rate, duration_s, seed=self._seed)
        await self._generator.run(self._queries, [0.0, *arrivals], concurrency=concurrency)

    async def step(self, *, rate: float, duration_s: float, concurrency: int) -> Step:
        """Send Find at ``rate`` for ``duration_s``, wait for the answers and for their spans."""
        arrivals = poisson_arrivals(rate, duration_s, seed=self._seed)
        self._receiver.clear()
        self._meter.begin()
        calls = await self._generator.run(self._queries, arrivals, concurrency=concurrency)
        usage = self._meter.read()
        trace_ids = {call.trace_id for call in calls if call.ok}
        await self._until_complete(trace_ids)
        return summarize(calls, find_timings(self._receiver.spans(), trace_ids), rate=rate, usage=usage)

    async def _until_complete(self, trace_ids: set[bytes]) -> None:
        deadline = monotonic() + SPANS_TIMEOUT_S

        def missing() -> bool:
            return complete_calls(self._receiver.spans(), trace_ids) < len(trace_ids)

        # Looked at now and then: decoding at every arrival would take time from the last answers.
        while missing() and monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)


def summarize(calls: Sequence[Call], find: FindTimings, *, rate: float, usage: tuple[Usage, ...] = ()) -> Step:
    """Count calls and put their times together with those of the spans."""
    answered = [call for call in calls if call.ok]
    seconds = max(call.ended for call in calls) - min(call.due for call in calls) if calls else 0.0
    return Step(
        rate=rate,
        sent=len(calls),
        failures=dict(Counter(call.code for call in calls if not call.ok)),
        empty=sum(call.hits == 0 for call in answered),
        degraded=sum(call.degraded for call in answered),
        throughput=len(answered) / seconds if seconds else 0.0,
        find=find,
        callers=distribution("callers", (call.latency_ms for call in answered)),
        held_back=distribution("held back", ((call.sent - call.due) * 1000 for call in calls)),
        usage=usage,
    )


def judge(step: Step) -> Verdict:
    """Say whether the 95th percentile of Find was below 100 ms at this step.

    It counts as the spans have it, but only when they tell of every answered call, when no call failed or was answered
    in part, and when callers did not wait for longer before or after what the spans cover.
    """
    p95 = step.find.rpc.p95
    if step.sent == 0:
        return Verdict(kept=False, text="No verdict: no call was due. Ask for a longer duration or a higher rate.")
    if step.find.complete < step.answered:
        return Verdict(
            kept=False,
            text=f"No verdict: of {step.answered} answered calls, the spans of {step.find.complete} arrived whole. "
            "Does the server send its traces here, and all of them?",
        )
    said = f"p95 of Find {p95:.1f} ms"
    if step.failures or step.degraded:
        failed = sum(step.failures.values())
        return Verdict(
            kept=False,
            text=f"{said}, but {failed} of {step.sent} calls failed and {step.degraded} answers are degraded",
        )
    if p95 >= BOUND_MS:
        return Verdict(kept=False, text=f"{said}: not below {BOUND_MS:.0f} ms")
    if step.callers.p95 >= BOUND_MS:
        return Verdict(
            kept=False,
            text=f"{said} inside of the server, but {step.callers.p95:.1f} ms for callers: not below {BOUND_MS:.0f} ms",
        )
    return Verdict(kept=True, text=f"{said}: below {BOUND_MS:.0f} ms")
