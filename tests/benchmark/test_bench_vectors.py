"""Vectors of the benchmark: embedded once, and ever after read from a file."""

from pathlib import Path

import numpy as np

from lorebank_server.bench.corpus import Corpus
from lorebank_server.bench.vectors import Embedded, Source, vectors_of
from lorebank_server.embedding import CachedEmbedder, EmbeddingSpec

CORPUS = Corpus(5)


async def made(count: int, folder: Path, *, corpus: Corpus = CORPUS, source: Source = "model") -> Embedded:
    return await vectors_of(corpus, count, spec=EmbeddingSpec(), source=source, folder=folder, progress=lambda _: None)


async def test_they_are_those_of_the_texts(tmp_path, embedder: CachedEmbedder):
    found = await made(5, tmp_path)
    expected = np.array(await embedder.embed_documents([CORPUS.text(position) for position in range(5)]))
    assert (embedder.model, embedder.dimensions) == (found.model, found.dimensions)
    assert np.allclose(expected, found.vectors, atol=1e-3)


async def test_the_second_time_nothing_is_embedded_and_more_extends_what_is_there(tmp_path):
    first = await made(6, tmp_path)
    again = await made(6, tmp_path)
    fewer = await made(4, tmp_path)
    more = await made(9, tmp_path)
    assert [6, 0, 0, 3] == [each.fresh for each in (first, again, fewer, more)]
    assert np.array_equal(first.vectors, more.vectors[:6])
    assert np.array_equal(first.vectors[:4], fewer.vectors)
    assert 1 == len(list(tmp_path.iterdir()))


async def test_a_write_that_was_interrupted_is_taken_up_where_it_was(tmp_path):
    whole = np.array((await made(6, tmp_path)).vectors)
    (file,) = tmp_path.iterdir()
    with file.open("r+b") as kept:
        kept.truncate(file.stat().st_size - 100)
    mended = await made(6, tmp_path)
    assert 1 == mended.fresh
    assert np.allclose(whole, mended.vectors, atol=1e-3)


async def test_another_seed_has_another_file(tmp_path):
    await made(3, tmp_path)
    assert 3 == (await made(3, tmp_path, corpus=Corpus(6))).fresh
    assert 2 == len(list(tmp_path.iterdir()))


async def test_mixed_ones_are_of_unit_length_near_the_real_ones_and_not_kept(tmp_path):
    real = await made(20, tmp_path / "real")
    mixed = await made(20, tmp_path / "mixed", source="mixed")
    cosines = np.sum(np.asarray(real.vectors, dtype=np.float32) * np.asarray(mixed.vectors, dtype=np.float32), axis=1)
    assert np.allclose(1.0, np.linalg.norm(mixed.vectors.astype(np.float32), axis=1), atol=1e-3)
    assert np.median(cosines) > 0.5
    assert not (tmp_path / "mixed").exists()
