"""One sentence-transformers model in ONNX form, run on the thread that calls it."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from lorebank_server.domain.errors import LorebankError
from lorebank_server.embedding.failures import misconfigured
from lorebank_server.embedding.model_files import ModelFiles, Pooling
from lorebank_server.embedding.unit_length import to_unit_vectors
from lorebank_server.ports.embedder import Vector

TokenIds = NDArray[np.int64]
"""``int64[tokens]``: one text, special tokens included, cut to the model's limit."""

_SERVED_INPUTS = {"input_ids", "attention_mask", "token_type_ids"}
_PREFERRED_OUTPUTS = ("sentence_embedding", "last_hidden_state", "token_embeddings")
_INPUT_TYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}


class OnnxModel:
    """A loaded graph with its tokenizer; safe to call from several threads at once.

    Attributes:
        dimensions: Length of every vector.
    """

    def __init__(self, session: Any, tokenizer: Tokenizer, pooling: Pooling) -> None:
        self._session = session
        self._tokenizer = tokenizer
        self._pooling = pooling
        self._pad_id = int((tokenizer.padding or {}).get("pad_id", 0))
        tokenizer.no_padding()
        self._inputs = {node.name: _INPUT_TYPES.get(node.type, np.int64) for node in session.get_inputs()}
        if not {"input_ids"} <= self._inputs.keys() <= _SERVED_INPUTS:
            raise misconfigured("The embedding model's graph takes inputs that are not served.")
        outputs = [node.name for node in session.get_outputs()]
        self._output = next((name for name in _PREFERRED_OUTPUTS if name in outputs), outputs[0])
        # A first run finds what the graph cannot do at start instead of at the first request.
        self.dimensions = self.embed(self.tokenize(["lorebank"]))[0].size

    @classmethod
    def load(cls, files: ModelFiles) -> Self:
        """Read a model from disk and run it once; blocks for a fraction of a second.

        Raises:
            EmbedderUnavailableError: The files are not a sentence-transformers model in ONNX form.
        """
        try:
            tokenizer = Tokenizer.from_file(str(files.tokenizer))
            tokenizer.enable_truncation(files.max_tokens)
            return cls(_open_session(files), tokenizer, files.pooling)
        except LorebankError:
            raise
        except Exception as error:  # onnxruntime's and tokenizers' errors share no ancestor but this
            raise misconfigured("The embedding model cannot be loaded.", cause=type(error).__name__) from error

    def tokenize(self, texts: Sequence[str]) -> list[TokenIds]:
        """Cut texts into tokens, in the order given."""
        # One by one: a batch would start the tokenizer's own threads, beside the ones counted in settings.
        return [np.array(self._tokenizer.encode(text).ids, dtype=np.int64) for text in texts]

    def embed(self, token_ids: Sequence[TokenIds]) -> list[Vector]:
        """Run one batch, at least one text long, and return its vectors in the order given."""
        shape = (len(token_ids), max([1, *(ids.size for ids in token_ids)]))
        input_ids = np.full(shape, self._pad_id, dtype=np.int64)
        mask = np.zeros(shape, dtype=np.int64)
        for row, ids in enumerate(token_ids):
            input_ids[row, : ids.size] = ids
            mask[row, : ids.size] = 1
        feeds = {"input_ids": input_ids, "attention_mask": mask, "token_type_ids": np.zeros_like(mask)}
        taken = {name: feeds[name].astype(kind, copy=False) for name, kind in self._inputs.items()}
        (output,) = self._session.run([self._output], taken)
        return to_unit_vectors(self._pool(np.asarray(output, dtype=np.float32), mask))

    def _pool(self, output: NDArray[np.float32], mask: TokenIds) -> NDArray[np.float32]:
        """Reduce ``float32[n, tokens, dimensions]`` to one row a text; pooled output passes through."""
        if output.ndim == 2:
            return output
        if self._pooling is Pooling.CLS:
            return np.ascontiguousarray(output[:, 0])
        weights = mask / np.maximum(mask.sum(axis=1, keepdims=True), 1)
        # einsum stays on this thread, where a matrix product would wake numpy's own pool.
        pooled: NDArray[np.float32] = np.einsum("ntd,nt->nd", output, weights.astype(np.float32))
        return pooled


def _open_session(files: ModelFiles) -> Any:
    import onnxruntime  # noqa: PLC0415 (takes a quarter of a second, and endpoints do without it)

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Both keep the memory of the largest batch ever seen; without them a process stays five times smaller.
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    return onnxruntime.InferenceSession(str(files.model), options, providers=["CPUExecutionProvider"])
