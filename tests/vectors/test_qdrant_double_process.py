"""The double as a process of its own keeps its points through a kill."""

import asyncio
import sys
from pathlib import Path

from vector_points import GENERATION, point

from lorebank_server.ports.vector_store import StoredVersion
from lorebank_server.vectors import QdrantSpec
from lorebank_server.vectors.qdrant import QdrantStore

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 60


async def started(path):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.qdrant_double", "--path", str(path), "--version", "1.16.2"),
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    async with asyncio.timeout(DEADLINE_S):
        line = (await process.stdout.readline()).decode()
    return process, line.removeprefix("listening on ").strip()


async def test_points_outlive_a_kill(tmp_path):
    process, url = await started(tmp_path / "points")
    store = QdrantStore.connect(QdrantSpec(url=url))
    await store.prepare(GENERATION)
    await store.upsert(GENERATION, [point(number) for number in range(3)])
    process.kill()
    await process.wait()
    await store.aclose()

    process, url = await started(tmp_path / "points")
    store = QdrantStore.connect(QdrantSpec(url=url))
    assert not await store.prepare(GENERATION)
    assert await store.scan(GENERATION, space_id=None, after=point(0).uid, limit=10) == [
        StoredVersion(point(1).uid, 1, 1),
        StoredVersion(point(2).uid, 1, 1),
    ]
    await store.aclose()
    process.terminate()
    assert await process.wait() == 0
