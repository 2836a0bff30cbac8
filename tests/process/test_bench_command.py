"""``lorebank bench`` from beginning to end: real spans of a real server, and a verdict."""

import json
from pathlib import Path

import pytest

from bench.service import Service, free_port
from lorebank import AsyncClient

STAGES = {"embed", "lexical", "dense", "confirm", "rank", "hydrate"}
SHORT = ("--rate", "20", "--duration", "1.5", "--warm-up", "0.5")


@pytest.fixture
def bench(lorebank, tmp_path):
    """Runs a short benchmark that keeps its vectors for this test."""

    async def run(*arguments: str):
        return await lorebank("bench", *SHORT, "--cache", str(tmp_path), *arguments)

    return run


async def test_it_measures_every_stage_of_a_server_of_its_own_whose_memories_may_be_kept(bench, folder: Path):
    report, plot = folder / "report.md", folder / "latency.png"
    loaded = ("--memories", "300", "--data", str(folder))
    measured = await bench(*loaded, "--rates", "10", "--json", "--report", str(report), "--plot", str(plot))
    document = json.loads(measured.out)
    slow, judged = document["steps"]
    assert [10.0, 20.0] == [slow["rate"], judged["rate"]]
    assert (
        "300, recombined from the example memories of `lorebank demo`, not real data" in document["facts"]["Memories"]
    )
    for step in (slow, judged):
        assert step["sent"] == step["answered"] == step["find"]["complete"] == step["find"]["rpc"]["count"] > 0
        assert (0, 0, {}) == (step["degraded"], step["empty"], step["failures"])
        stages = {stage["name"]: stage for stage in step["find"]["stages"]}
        assert STAGES <= stages.keys()
        assert all(0 < stage["p50"] <= stage["p95"] <= stage["p99"] for stage in stages.values())
        assert 0 < step["find"]["rpc"]["p50"] <= step["callers"]["p50"]
        assert ["server", "postgres", "load generator"] == [usage["name"] for usage in step["usage"]]
        assert all(usage["memory_mib"] > 10 for usage in step["usage"])
    assert judged["usage"][0]["cores"] > 0
    fast = max(judged["find"]["rpc"]["p95"], judged["callers"]["p95"]) < 100
    assert (fast, 0 if fast else 1) == (document["verdict"]["kept"], measured.code)
    assert f"p95 of Find {judged['find']['rpc']['p95']:.1f} ms" in document["verdict"]["text"]
    assert document["verdict"]["text"] == report.read_text().splitlines()[-1]
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert "loaded 300 of 300" in measured.err

    again = await bench(*loaded, "--workers", "2", "--query-cache", "on")
    assert "all were there before" in again.out
    assert "serving processes: 2, cache of query vectors: on" in again.out
    assert "100 in turns" in again.out
    assert "loaded" not in again.err


async def test_it_measures_a_server_that_runs(bench, service: Service, database):
    otlp = f"127.0.0.1:{free_port()}"
    service.start(
        LOREBANK_DATABASE_URL=database, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{otlp}", OTEL_BSP_SCHEDULE_DELAY="100"
    )
    await service.ready()
    async with AsyncClient(service.address) as client:
        await client.store("The spare key hangs behind the fuse box.")
    measured = await bench("--server", service.address, "--otlp-listen", otlp, "--json")
    document = json.loads(measured.out)
    (step,) = document["steps"]
    assert f"{service.address}, with whatever memories it holds" == document["facts"]["Server"]
    assert step["sent"] == step["find"]["complete"] > 0
    assert ["load generator"] == [usage["name"] for usage in step["usage"]]


async def test_what_makes_no_sense_is_said_before_anything_is_done(bench):
    for arguments, said in (
        (("--plot", "latency.png"), "--plot draws latency over several rates"),
        (("--rates", "5,fast"), "must be numbers above 0"),
        (("--setting", "LOREBANK_EMBEDDING_THREADS"), "must be NAME=VALUE"),
    ):
        refused = await bench(*arguments)
        assert (2, "") == (refused.code, refused.out)
        assert said in refused.err
    unknown = await bench("--setting", "LOREBANK_LISTN=x")
    assert (78, "") == (unknown.code, unknown.out)
    assert "LOREBANK_LISTN is no setting of Lorebank" in unknown.err
