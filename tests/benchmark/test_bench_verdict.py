"""What is said of a measurement: the verdict, the page and the picture."""

import json

import pytest

from lorebank_server.bench import picture
from lorebank_server.bench.load_generator import Call
from lorebank_server.bench.measurement import judge, summarize
from lorebank_server.bench.processes import Usage
from lorebank_server.bench.report import Run, as_document, render
from lorebank_server.bench.timings import OUTSIDE, FindTimings, distribution

RATE = 10.0


def call(number: int, *, ms: float = 40.0, code: str = "OK", degraded: bool = False) -> Call:
    due = number / RATE
    return Call(number.to_bytes(16), due, due + 0.001, due + ms / 1000, code, 10, degraded)


def spans_of(count: int, ms: float) -> FindTimings:
    times = distribution("Find", [ms] * count)
    return FindTimings(count, times, (distribution("embed", [ms / 2] * count), distribution(OUTSIDE, [1.0] * count)))


def step_of(calls: list[Call], *, ms: float = 38.2, complete: int | None = None, rate: float = RATE):
    answered = sum(each.ok for each in calls)
    return summarize(
        calls,
        spans_of(answered if complete is None else complete, ms),
        rate=rate,
        usage=(Usage("server", 0.5, 300.0), Usage("load generator", 0.1, 90.0)),
    )


GOOD = [call(number) for number in range(20)]


def test_a_p95_below_the_bound_is_kept():
    verdict = judge(step_of(GOOD))
    assert (True, "p95 of Find 38.2 ms: below 100 ms") == (verdict.kept, verdict.text)


@pytest.mark.parametrize("ms", [100.0, 145.3])
def test_a_p95_at_the_bound_or_above_is_not(ms):
    verdict = judge(step_of(GOOD, ms=ms))
    assert (False, f"p95 of Find {ms} ms: not below 100 ms") == (verdict.kept, verdict.text)


def test_missing_spans_leave_no_verdict():
    verdict = judge(step_of(GOOD, complete=19))
    assert not verdict.kept
    assert verdict.text.startswith("No verdict: of 20 answered calls, the spans of 19 arrived whole.")


def test_callers_who_waited_outside_of_the_spans_are_heard():
    verdict = judge(step_of([call(number, ms=250.0) for number in range(20)]))
    assert not verdict.kept
    assert "38.2 ms inside of the server, but 250.0 ms for callers: not below 100 ms" in verdict.text


def test_failed_calls_and_partial_answers_are_no_success():
    for odd in (call(20, code="UNAVAILABLE"), call(20, degraded=True)):
        assert not judge(step_of([*GOOD, odd])).kept


def test_without_a_call_there_is_no_verdict():
    verdict = judge(step_of([]))
    assert (False, True) == (verdict.kept, verdict.text.startswith("No verdict"))


def test_a_step_counts_its_calls():
    step = step_of([*GOOD, call(20, code="UNAVAILABLE"), call(21, degraded=True)])
    assert (22, 21, {"UNAVAILABLE": 1}, 1) == (step.sent, step.answered, dict(step.failures), step.degraded)
    assert pytest.approx(21 / 2.14) == step.throughput
    assert pytest.approx(40.0) == step.callers.p95
    assert pytest.approx(1.0) == step.held_back.p99


def run_of(*rates: float) -> Run:
    steps = tuple(step_of(GOOD, rate=rate) for rate in rates)
    return Run("20 memories", (("Memories", "20, made up"),), steps, steps[0], judge(steps[0]))


def test_the_page_names_every_stage_and_ends_with_the_verdict():
    page = render(run_of(RATE))
    lines = page.splitlines()
    assert "- Memories: 20, made up" in lines
    rows = {line.split("|")[1].strip(): line for line in lines if line.startswith("|")}
    assert {"Find, by its spans", "- embed", "- outside of stages", "for callers, from when due"} <= rows.keys()
    assert "19.10" in rows["- embed"]
    assert "- Spans: whole for 20 of 20 answered calls." in lines
    assert "- Used by server: 0.50 cores, 300 MiB." in lines
    assert "p95 of Find 38.2 ms: below 100 ms" == lines[-1]
    assert "## All rates" not in lines


def test_several_rates_are_compared():
    page = render(run_of(5.0, 10.0, 20.0))
    table = page.partition("## All rates")[2]
    assert ["5", "10", "20"] == [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")][2:]


def test_the_document_is_json_with_everything_of_the_page():
    document = json.loads(json.dumps(as_document(run_of(5.0, 10.0))))
    assert {"rate": 5.0, "bound_ms": 100.0, "kept": True} == {
        name: document["verdict"][name] for name in ("rate", "bound_ms", "kept")
    }
    assert [5.0, 10.0] == [step["rate"] for step in document["steps"]]
    assert 38.2 == document["steps"][0]["find"]["rpc"]["p95"]


def test_the_picture_is_a_png(tmp_path):
    file = tmp_path / "latency.png"
    picture.draw(run_of(5.0, 10.0).steps, file, title="some memories")
    assert file.read_bytes().startswith(b"\x89PNG")
