"""Vectors of a corpus: embedded once, kept in a file, and read from it ever after."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lorebank_server.bench.corpus import Corpus, examples, piece
from lorebank_server.embedding import EmbeddingSpec, create_embedder
from lorebank_server.ports.embedder import Embedder

Vectors: TypeAlias = NDArray[np.float16]
"""``float16[memories, dimensions]``, each row of unit length: as Postgres keeps them."""

Source: TypeAlias = Literal["model", "mixed"]
"""``model`` embeds every text; ``mixed`` adds up the vectors of its three parts, which takes seconds for any number."""

_BLOCK: Final = 1024
_SAMPLE: Final = 100

Progress: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Embedded:
    """The vectors of a corpus and how they came about.

    Attributes:
        model: Identity of the model.
        dimensions: Length of a vector.
        fresh: How many were computed now; the others were in the file.
        seconds: What that took.
    """

    vectors: Vectors
    model: str
    dimensions: int
    fresh: int
    seconds: float


async def vectors_of(
    corpus: Corpus, count: int, *, spec: EmbeddingSpec, source: Source, folder: Path, progress: Progress
) -> Embedded:
    """Vectors of the first ``count`` memories; what is computed is kept, also when it is interrupted.

    The file goes by model, seed and a sample of the texts: another model, seed or way of putting texts together has
    another file, and a larger corpus extends the file of a smaller one.

    Args:
        corpus: Whose texts.
        count: How many, from the first on.
        spec: The model; all cores embed, whatever its threads.
        source: Where vectors come from; ``mixed`` ones are not kept.
        folder: Where the files are; made if missing.
        progress: Told now and then how far it is.

    Raises:
        EmbedderUnavailableError: The model cannot be loaded or does not answer.
        OSError: The folder or the file cannot be written.
    """
    # One thread more than cores: the embedder keeps one for queries, of which there are none here.
    embedder = await create_embedder(replace(spec, threads=(os.cpu_count() or 1) + 1))
    begin = perf_counter()
    try:
        if source == "mixed":
            vectors, fresh = await _mixed(corpus, count, embedder), count
        else:
            file = folder / f"vectors-{_key(corpus, embedder)}.f16"
            fresh = await _extend(file, corpus, count, embedder, progress)
            vectors = np.memmap(file, dtype=np.float16, mode="r", shape=(count, embedder.dimensions))
        return Embedded(vectors, embedder.model, embedder.dimensions, fresh, perf_counter() - begin)
    finally:
        await embedder.aclose()


def _key(corpus: Corpus, embedder: Embedder) -> str:
    sample = [corpus.text(position) for position in range(_SAMPLE)]
    named = [embedder.model, str(embedder.dimensions), str(corpus.seed), *sample]
    return sha256("\0".join(named).encode()).hexdigest()[:16]


async def _extend(file: Path, corpus: Corpus, count: int, embedder: Embedder, progress: Progress) -> int:
    """Append the vectors that the file lacks; returns how many."""
    file.parent.mkdir(parents=True, exist_ok=True)
    row_bytes = embedder.dimensions * np.dtype(np.float16).itemsize
    with file.open("ab") as kept:
        first = kept.tell() // row_bytes
        kept.truncate(first * row_bytes)  # an interrupted write may have left part of a row
        for start in range(first, count, _BLOCK):
            texts = [corpus.text(position) for position in range(start, min(count, start + _BLOCK))]
            kept.write(np.asarray(await embedder.embed_documents(texts), dtype=np.float16).tobytes())
            kept.flush()
            progress(f"embedded {start + len(texts)} of {count}")
    return max(0, count - first)


async def _mixed(corpus: Corpus, count: int, embedder: Embedder) -> Vectors:
    """The mean of a text's parts, which is near the vector of a model that takes the mean of a text's words."""
    pieces = [" ".join(piece(number, part)) for part in range(3) for number in range(len(examples()))]
    vectors = np.asarray(await embedder.embed_documents(pieces)).reshape(3, len(examples()), -1)
    mixed = np.empty((count, embedder.dimensions), dtype=np.float16)
    for start in range(0, count, _BLOCK):
        places = np.array([corpus.parts(position) for position in range(start, min(count, start + _BLOCK))])
        sums = vectors[0, places[:, 0]] + vectors[1, places[:, 1]] + vectors[2, places[:, 2]]
        mixed[start : start + len(places)] = sums / np.linalg.norm(sums, axis=1, keepdims=True)
    return mixed
