"""Models from a folder, laid out as sentence-transformers publishes them."""

import json
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from lorebank_server.domain.errors import EmbedderUnavailableError
from lorebank_server.embedding import EmbeddingSpec, create_embedder
from lorebank_server.embedding.local import OnnxEmbedder
from lorebank_server.embedding.model_files import Pooling, packaged_model, read_model_folder

TEXT = "The staging database moved to port 5433."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "my-model"
    folder.mkdir()
    shutil.copy(packaged_model().model, folder / "model.onnx")
    shutil.copy(packaged_model().tokenizer, folder / "tokenizer.json")
    return folder


def write_json(path: Path, content: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))


async def embed(read_files) -> np.ndarray:
    embedder = await OnnxEmbedder.create(read_files, threads=1)
    vector = await embedder.embed_query(TEXT)
    await embedder.aclose()
    return vector


async def test_a_copy_of_the_packaged_model_embeds_as_it_does(folder: Path):
    embedder = await create_embedder(EmbeddingSpec(model_dir=folder, threads=1))
    vector = await embedder.embed_query(TEXT)
    await embedder.aclose()
    assert 384 == embedder.dimensions
    np.testing.assert_allclose(await embed(packaged_model), vector, atol=1e-6)


def test_the_identity_is_the_folder_name_and_the_weights_digest(folder: Path):
    before = read_model_folder(folder).identity
    assert before.startswith("my-model-")
    assert before == read_model_folder(folder).identity
    (folder / "model.onnx_data").write_bytes(b"weights")
    assert before != read_model_folder(folder).identity


@pytest.mark.parametrize("place", ["model.onnx", "onnx/model.onnx", "model_quantized.onnx", "onnx/model_int8.onnx"])
def test_the_graph_is_found_in_the_usual_places(folder: Path, place: str):
    (folder / "onnx").mkdir()
    (folder / "model.onnx").rename(folder / place)
    assert folder / place == read_model_folder(folder).model


def test_several_graphs_of_other_names_are_ambiguous(folder: Path):
    (folder / "model.onnx").rename(folder / "a.onnx")
    shutil.copy(folder / "a.onnx", folder / "b.onnx")
    with pytest.raises(EmbedderUnavailableError, match=r"one \*\.onnx file"):
        read_model_folder(folder)


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("sentence_bert_config.json", {"max_seq_length": 128}, 128),
        ("sentence_bert_config.json", {"max_seq_length": None}, 256),
        ("tokenizer_config.json", {"model_max_length": 64}, 64),
        ("tokenizer_config.json", {"model_max_length": 1e30}, 256),
        ("config.json", {"max_position_embeddings": 512}, 256),
    ],
)
def test_the_smallest_limit_cuts_inputs(folder: Path, name: str, settings: dict, expected: int):
    write_json(folder / name, settings)
    assert expected == read_model_folder(folder).max_tokens


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, Pooling.CLS),
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, Pooling.MEAN),
        ({"pooling_mode": "cls"}, Pooling.CLS),
        ({"word_embedding_dimension": 384}, Pooling.MEAN),
    ],
)
def test_pooling_is_read_from_its_folder(folder: Path, settings: dict, expected: Pooling):
    write_json(folder / "1_Pooling" / "config.json", settings)
    assert expected is read_model_folder(folder).pooling


@pytest.mark.parametrize(
    "settings", [{"pooling_mode_max_tokens": True}, {"pooling_mode": "lasttoken"}, ["not an object"]]
)
def test_other_pooling_is_refused(folder: Path, settings: object):
    write_json(folder / "1_Pooling" / "config.json", settings)
    with pytest.raises(EmbedderUnavailableError):
        read_model_folder(folder)


async def test_cls_pooling_gives_another_vector_than_mean(folder: Path):
    mean = await embed(partial(read_model_folder, folder))
    write_json(folder / "1_Pooling" / "config.json", {"pooling_mode_cls_token": True})
    cls = await embed(partial(read_model_folder, folder))
    assert not np.allclose(mean, cls)


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
async def test_a_missing_or_broken_file_is_a_misconfiguration(folder: Path, name: str):
    (folder / name).write_bytes(b"not what it should be")
    for _ in range(2):
        with pytest.raises(EmbedderUnavailableError) as caught:
            await create_embedder(EmbeddingSpec(model_dir=folder))
        assert "EMBEDDER_MISCONFIGURED" == caught.value.reason
        (folder / name).unlink(missing_ok=True)


@pytest.mark.parametrize(
    "settings",
    [
        {"url": "http://localhost/v1", "model": "m", "model_dir": Path()},
        {"url": "http://localhost/v1"},
        {"threads": 0},
        {"timeout_s": 0},
        {"dimensions": 0},
    ],
)
def test_contradictory_settings_are_refused(settings: dict):
    with pytest.raises(ValueError, match=r"embedder|must"):
        EmbeddingSpec(**settings)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({}, "local"), ({"model_dir": Path()}, "folder"), ({"url": "http://localhost/v1", "model": "m"}, "http")],
)
def test_settings_choose_the_provider(settings: dict, expected: str):
    assert expected == EmbeddingSpec(**settings).provider


def test_the_key_is_not_shown():
    assert "secret" not in repr(EmbeddingSpec(url="http://localhost/v1", model="m", api_key="secret"))
