"""The embedder that runs a model in this process."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Self, TypeVar

from lorebank_server.domain.errors import LorebankError
from lorebank_server.embedding.failures import unavailable
from lorebank_server.embedding.model_files import ModelFiles
from lorebank_server.embedding.model_time import InputKind, model_run
from lorebank_server.embedding.onnx_model import OnnxModel, TokenIds
from lorebank_server.ports.embedder import Vector

MAX_BATCH_TEXTS = 32
"""Most texts in one run of the model."""

MAX_BATCH_TOKENS = 256
"""Most tokens in one run, padding included, unless one text alone has more.

Larger batches gain nothing on a CPU (without an arena long ones cost up to twice as much a text), and a
query waits for the run before it: this keeps that wait near the time of one long text.
"""

_T = TypeVar("_T")
_A = TypeVar("_A")


class OnnxEmbedder:
    """Embeds with a sentence-transformers model on a fixed number of threads.

    Queries come first: documents are run one small batch at a time, on all threads but one (on the only one
    if there is one), so that a query waits for one batch at most. A vector does not depend on the texts that
    shared its batch.
    """

    def __init__(self, model: OnnxModel, pool: ThreadPoolExecutor, *, identity: str, threads: int) -> None:
        self._model = model
        self._pool = pool
        self._identity = identity
        self._document_slots = asyncio.Semaphore(max(1, threads - 1))

    @classmethod
    async def create(cls, read_files: Callable[[], ModelFiles], *, threads: int) -> Self:
        """Load a model off the event loop.

        Args:
            read_files: Says where the model lies; called on a worker thread, as it may read the whole model.
            threads: Texts embedded at the same time, each on one core; at least 1.

        Raises:
            EmbedderUnavailableError: The model cannot be loaded.
        """
        pool = ThreadPoolExecutor(threads, thread_name_prefix="embedding")
        try:
            loop = asyncio.get_running_loop()
            files = await loop.run_in_executor(pool, read_files)
            model = await loop.run_in_executor(pool, OnnxModel.load, files)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return cls(model, pool, identity=files.identity, threads=threads)

    @property
    def model(self) -> str:
        """Identity of the model, recorded with every vector it made."""
        return self._identity

    @property
    def dimensions(self) -> int:
        """Length of every vector."""
        return self._model.dimensions

    async def embed_query(self, text: str) -> Vector:
        """Embed one query, ahead of all documents that are not running yet.

        Raises:
            EmbedderUnavailableError: The model failed, or the embedder is closed.
        """
        return (await self._run(lambda: self._embed("query", self._model.tokenize([text]))))[0]

    async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        """Embed texts in the order given; none for none.

        Raises:
            EmbedderUnavailableError: The model failed, or the embedder is closed.
        """
        token_ids = []
        for start in range(0, len(texts), MAX_BATCH_TEXTS):
            token_ids += await self._run_document(self._model.tokenize, texts[start : start + MAX_BATCH_TEXTS])
        vectors: dict[int, Vector] = {}
        for positions in plan_batches([ids.size for ids in token_ids]):
            batch = [token_ids[position] for position in positions]
            vectors.update(
                zip(positions, await self._run_document(partial(self._embed, "document"), batch), strict=True)
            )
        return [vectors[position] for position in range(len(texts))]

    async def aclose(self) -> None:
        """Wait for the runs under way, then end the threads; safe to call twice."""
        await asyncio.to_thread(self._pool.shutdown)

    def _embed(self, kind: InputKind, token_ids: Sequence[TokenIds]) -> list[Vector]:
        with model_run(kind, texts=len(token_ids)):
            return self._model.embed(token_ids)

    async def _run_document(self, work: Callable[[Sequence[_A]], _T], batch: Sequence[_A]) -> _T:
        async with self._document_slots:
            return await self._run(lambda: work(batch))

    async def _run(self, work: Callable[[], _T]) -> _T:
        try:
            # In the caller's context, so that the time it takes is told as part of the caller's trace.
            return await asyncio.get_running_loop().run_in_executor(self._pool, copy_context().run, work)
        except LorebankError:
            raise
        except Exception as error:  # noqa: BLE001 (onnxruntime's errors share no ancestor but this)
            # The driver's message may quote its input, so only its kind goes on.
            raise unavailable("The embedding model failed; retry.", cause=type(error).__name__) from None


def plan_batches(lengths: Sequence[int]) -> list[list[int]]:
    """Group texts of similar length into runs of the model.

    Args:
        lengths: Tokens of each text.

    Returns:
        Positions in ``lengths``, each once, shortest first; every run holds at most ``MAX_BATCH_TEXTS`` and,
        padded to its longest, at most ``MAX_BATCH_TOKENS`` unless it holds one text alone.
    """
    batches: list[list[int]] = []
    for position in sorted(range(len(lengths)), key=lengths.__getitem__):
        fits = batches and len(batches[-1]) < min(MAX_BATCH_TEXTS, MAX_BATCH_TOKENS // max(1, lengths[position]))
        if fits:
            batches[-1].append(position)
        else:
            batches.append([position])
    return batches
