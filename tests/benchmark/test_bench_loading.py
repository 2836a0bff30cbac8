"""A bulk load writes what Store writes."""

from dataclasses import replace

import asyncpg
import numpy as np
import pytest

from lorebank import AsyncClient
from lorebank.v1.memory_pb2 import Memory
from lorebank_server.bench.corpus import Corpus
from lorebank_server.bench.loading import OWNER, ForeignDataError, load
from lorebank_server.bench.vectors import Embedded
from lorebank_server.embedding import CachedEmbedder
from lorebank_server.rpc.conversion.drafts import write_draft

CORPUS = Corpus(5)
SOME = 12

OWN = {"uid", "id", "memory", "version", "bucket_id", "space_id", "model", "found_until"}
"""Columns with values of their own in every row or database, or that follow from the moment; as do all times."""


@pytest.fixture
async def embedded(embedder: CachedEmbedder) -> Embedded:
    texts = [CORPUS.text(position) for position in range(SOME)]
    vectors = np.array(await embedder.embed_documents(texts), dtype=np.float16)
    return Embedded(vectors, embedder.model, embedder.dimensions, 0, 0.0)


def first(embedded: Embedded, count: int) -> Embedded:
    return replace(embedded, vectors=embedded.vectors[:count])


async def rows(dsn: str, table: str) -> list[tuple[str, dict[str, object]]]:
    """A table's rows without what is drawn and when it was, with the body that each belongs to."""
    connection = await asyncpg.connect(dsn)
    try:
        found = await connection.fetch(
            f"select m.body::text as of, b.scope, b.owner as bucket_owner, b.project, t.* from {table} t "
            f"join memories m on m.uid = t.{'uid' if table == 'memories' else 'memory'} "
            "join buckets b on b.id = m.bucket_id order by of"
        )
    finally:
        await connection.close()
    left_out = OWN | {name for name in dict(found[0]) if name.endswith("_time")}
    return [(row["of"], {name: str(value) for name, value in row.items() if name not in left_out}) for row in found]


async def count(dsn: str) -> int:
    connection = await asyncpg.connect(dsn)
    try:
        return int(await connection.fetchval("select count(*) from memories"))
    finally:
        await connection.close()


async def test_its_rows_are_those_of_store(database_factory, server_factory, embedded):
    loaded, stored = await database_factory(), await database_factory()
    told: list[str] = []
    result = await load(loaded, CORPUS, embedded, known=0, progress=told.append)
    async with server_factory(dsn=stored) as live:
        async with AsyncClient(live.address) as admin:
            key = await admin.keys.create(OWNER, roles=["writer"])
        async with AsyncClient(live.address, api_key=key.secret) as client:
            for position in range(SOME):
                memory = Memory()
                write_draft(CORPUS.draft(position), memory)
                await client.store(memory=memory)
    assert (SOME, SOME) == (result.memories, result.fresh)
    assert f"loaded {SOME} of {SOME}" in told
    for table in ("memories", "revisions", "embeddings"):
        for (_, expected), (_, found) in zip(await rows(stored, table), await rows(loaded, table), strict=True):
            assert expected == found


async def test_what_it_loaded_is_found_with_its_key(database, server_factory, embedded):
    result = await load(database, CORPUS, embedded, known=0, progress=lambda _: None)
    async with server_factory(dsn=database) as live, AsyncClient(live.address, api_key=result.secret) as client:
        answer = await client.find(CORPUS.draft(7).content)
    assert CORPUS.draft(7).content == answer.hits[0].memory.content
    assert not answer.degraded


async def test_a_database_that_holds_the_beginning_gets_the_rest(database, embedded):
    results = [
        await load(database, CORPUS, first(embedded, size), known=known, progress=lambda _: None)
        for size, known in ((5, 0), (SOME, SOME), (SOME, SOME))
    ]
    assert [5, SOME - 5, 0] == [result.fresh for result in results]
    assert SOME == await count(database)


async def test_a_database_with_other_memories_is_left_alone(database, server_factory, embedded):
    async with server_factory(dsn=database) as live, AsyncClient(live.address) as client:
        await client.store("The spare key hangs behind the fuse box.")
    with pytest.raises(ForeignDataError, match="There are 1 memories in the database, of which 0 are expected"):
        await load(database, CORPUS, embedded, known=0, progress=lambda _: None)
    assert 1 == await count(database)


async def test_a_database_with_more_memories_than_asked_for_is_refused(database, embedded):
    await load(database, CORPUS, embedded, known=0, progress=lambda _: None)
    with pytest.raises(ForeignDataError, match="ask for as many memories as this one was loaded with"):
        await load(database, CORPUS, first(embedded, 5), known=SOME, progress=lambda _: None)


async def test_vectors_of_other_texts_are_refused(database, embedded):
    with pytest.raises(RuntimeError, match="another text than its vector was made of"):
        await load(database, MovedCorpus(5), embedded, known=0, progress=lambda _: None)
    assert 0 == await count(database)


class MovedCorpus(Corpus):
    """Says that its texts are others than those of its memories."""

    def text(self, position: int) -> str:
        return super().text(position + 1)
