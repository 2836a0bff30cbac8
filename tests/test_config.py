from pathlib import Path

import pytest
from pydantic import ValidationError

from lorebank_server import config
from lorebank_server.config import ConfigurationError, Settings, load_settings, split_listen
from lorebank_server.config_reference import describe, render_config_reference
from lorebank_server.embedding_backend import embedding_spec, next_embedding_spec

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def empty_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(environ, **kwargs):
    with pytest.raises(ConfigurationError) as caught:
        load_settings(environ, **kwargs)
    return str(caught.value)


def test_without_any_variable_every_field_has_its_default():
    loaded = load_settings({})
    assert loaded.settings.listen == "127.0.0.1:50051"
    assert loaded.settings.database_url is None
    assert loaded.settings.max_message_bytes == 4_194_304
    assert loaded.settings.auth == "auto"
    assert dict.fromkeys(Settings.model_fields, "default") == loaded.sources


def test_the_environment_beats_the_file_and_the_file_beats_the_default(empty_directory):
    (empty_directory / ".env").write_text("LOREBANK_LOG_LEVEL=debug\nLOREBANK_DATABASE_POOL_SIZE=3\nOTHER=1\n")
    loaded = load_settings({"LOREBANK_LOG_LEVEL": "ERROR", "PATH": "/bin"})
    assert loaded.settings.log_level == "error"
    assert loaded.settings.database_pool_size == 3
    assert loaded.sources["log_level"] == "environment"
    assert loaded.sources["database_pool_size"] == ".env"
    assert loaded.sources["listen"] == "default"


def test_the_process_environment_is_read_when_none_is_given(monkeypatch):
    monkeypatch.setenv("LOREBANK_QUERY_CACHE_SIZE", "7")
    assert load_settings().settings.query_cache_size == 7


def test_the_file_can_be_left_out(empty_directory):
    (empty_directory / ".env").write_text("LOREBANK_NONSENSE=1\n")
    assert load_settings({}, env_file=None).settings.log_level == "info"


def test_a_file_that_is_no_text_is_refused(empty_directory):
    (empty_directory / ".env").write_bytes(b"LOREBANK_LOG_LEVEL=\xff\n")
    assert "cannot be read as UTF-8" in refusal({})


def test_an_empty_value_counts_as_not_given():
    loaded = load_settings({"LOREBANK_DATABASE_URL": "", "LOREBANK_EMBEDDING_DIMENSIONS": ""})
    assert loaded.settings.database_url is None
    assert loaded.sources["database_url"] == "default"


def test_direct_construction_reads_nothing_from_outside(monkeypatch):
    monkeypatch.setenv("LOREBANK_LOG_LEVEL", "error")
    assert Settings().log_level == "info"


def test_settings_cannot_be_changed():
    with pytest.raises(ValidationError):
        load_settings({}).settings.listen = "127.0.0.1:1"


@pytest.mark.parametrize("place", ["environment", "file"])
def test_every_unknown_name_is_refused_with_the_closest_one(place, empty_directory):
    unknown = {"LOREBANK_LISTN": "x", "LOREBANK_DATABASE_POOLSIZE": "4"}
    if place == "file":
        (empty_directory / ".env").write_text("".join(f"{name}={value}\n" for name, value in unknown.items()))
    message = refusal(unknown if place == "environment" else {})
    assert message.splitlines() == [
        "LOREBANK_DATABASE_POOLSIZE is no setting of Lorebank; the closest is LOREBANK_DATABASE_POOL_SIZE",
        "LOREBANK_LISTN is no setting of Lorebank; the closest is LOREBANK_LISTEN",
    ]


def test_names_of_other_parts_of_lorebank_pass():
    load_settings({**dict.fromkeys(config.RESERVED_NAMES, "x"), "LOREBANK_TEST_ANYTHING": "1"})


def test_variables_that_announce_a_service_called_lorebank_pass():
    load_settings(
        {
            "LOREBANK_SERVICE_HOST": "10.0.0.1",
            "LOREBANK_SERVICE_PORT": "50051",
            "LOREBANK_SERVICE_PORT_GRPC": "50051",
            "LOREBANK_PORT": "tcp://10.0.0.1:50051",
            "LOREBANK_PORT_50051_TCP": "tcp://10.0.0.1:50051",
            "LOREBANK_PORT_50051_TCP_ADDR": "10.0.0.1",
            "LOREBANK_POSTGRES_PORT": "tcp://10.0.0.2:5432",
        }
    )


def test_a_port_that_announces_no_service_is_refused():
    assert "LOREBANK_PORT is no setting" in refusal({"LOREBANK_PORT": "50051"})


def test_a_wrong_value_is_named_with_its_source_and_what_is_expected(empty_directory):
    (empty_directory / ".env").write_text("LOREBANK_DRAIN_GRACE_S=soon\n")
    message = refusal({"LOREBANK_LOG_FORMAT": "xml"})
    number, choice = sorted(message.splitlines())
    assert number.startswith("LOREBANK_DRAIN_GRACE_S is 'soon' (from .env): it should be a valid number")
    assert choice == "LOREBANK_LOG_FORMAT is 'xml' (from environment): it should be 'auto', 'json' or 'console'"


def test_a_wrong_secret_is_not_shown():
    message = refusal({"LOREBANK_DATABASE_URL": "mysql://lore:hunter2@db/lore"})
    assert "hunter2" not in message
    assert "LOREBANK_DATABASE_URL is ********** (from environment): expected postgresql://" in message


@pytest.mark.parametrize("number", ["nan", "inf", "-1"])
def test_times_are_finite_and_not_negative(number):
    assert "LOREBANK_DRAIN_GRACE_S" in refusal({"LOREBANK_DRAIN_GRACE_S": number})


@pytest.mark.parametrize(
    ("listen", "expected"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:50051", ("::1", 50051)),
        ("my-host.example:65535", ("my-host.example", 65535)),
    ],
)
def test_listen_is_host_and_port(listen, expected):
    assert split_listen(load_settings({"LOREBANK_LISTEN": listen}).settings.listen) == expected


@pytest.mark.parametrize(
    "listen", ["50051", ":50051", "host", "host:", "::1:50051", "[:::]:1", "a:65536", "unix:/x", "unix:1", "a b:1"]
)
def test_anything_else_to_listen_on_is_refused(listen):
    assert f"LOREBANK_LISTEN is {listen!r}" in refusal({"LOREBANK_LISTEN": listen})


@pytest.mark.parametrize(
    ("listen", "expected"),
    [
        ("127.0.0.1:1", True),
        ("127.9.9.9:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("example.org:1", False),
    ],
)
def test_loopback_is_told_from_the_outside(listen, expected):
    assert Settings(listen=listen).listens_on_loopback is expected


def test_paths_are_absolute_and_know_the_home_folder(empty_directory, monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    settings = load_settings({"LOREBANK_DATA_DIR": "~/lore", "LOREBANK_EMBEDDING_MODEL_DIR": "m"}).settings
    assert settings.data_dir == Path("/home/somebody/lore")
    assert settings.embedding_model_dir == empty_directory / "m"


@pytest.mark.parametrize(("user_id", "as_root"), [(0, True), (1000, False)])
def test_the_default_data_folder_depends_on_who_starts_the_server(user_id, as_root, monkeypatch):
    monkeypatch.setattr(config.os, "geteuid", lambda: user_id)
    assert (load_settings({}).settings.data_dir == Path("/var/lib/lorebank")) is as_root


@pytest.mark.parametrize("which", ["", "NEXT_"])
def test_two_embedders_in_one_place_are_refused(which):
    name = f"LOREBANK_{which}EMBEDDING"
    environ = {f"{name}_URL": "http://localhost:1/v1", f"{name}_MODEL": "m", f"{name}_MODEL_DIR": "d"}
    assert f"{name}_URL and {name}_MODEL_DIR exclude each other" in refusal(environ)


@pytest.mark.parametrize("which", ["", "NEXT_"])
def test_an_embedding_service_needs_the_name_of_a_model(which):
    name = f"LOREBANK_{which}EMBEDDING"
    assert f"{name}_URL needs {name}_MODEL" in refusal({f"{name}_URL": "http://localhost:1/v1"})


def test_a_first_and_a_next_embedder_go_together():
    environ = {
        "LOREBANK_EMBEDDING_URL": "http://localhost:1/v1",
        "LOREBANK_EMBEDDING_MODEL": "m",
        "LOREBANK_NEXT_EMBEDDING_MODEL_DIR": "d",
    }
    settings = load_settings(environ).settings
    assert ("m", "d") == (embedding_spec(settings).model, next_embedding_spec(settings).model_dir.name)
    assert next_embedding_spec(Settings()) is None


@pytest.mark.parametrize(
    "url", ["http://localhost:6334", "https://qdrant.example", "http://[::1]:6334/", "https://10.0.0.1:443"]
)
def test_qdrant_is_named_by_the_address_of_its_grpc_port(url):
    assert load_settings({"LOREBANK_QDRANT_URL": url}).settings.qdrant_url == url


@pytest.mark.parametrize(
    "url", ["localhost:6334", "grpc://a:6334", "http://", "http://a:70000", "http://a/path", "http://me:pass@a:6334"]
)
def test_any_other_address_of_qdrant_is_refused(url):
    assert "expected http://host:6334" in refusal({"LOREBANK_QDRANT_URL": url})


def test_qdrants_http_port_is_told_from_its_grpc_port():
    assert "6333 is Qdrant's HTTP port" in refusal({"LOREBANK_QDRANT_URL": "http://localhost:6333"})


@pytest.mark.parametrize("prefix", ["a/b", "-a", "a b", "ä", "a" * 101])
def test_a_prefix_that_cannot_name_a_collection_is_refused(prefix):
    assert "LOREBANK_QDRANT_PREFIX" in refusal({"LOREBANK_QDRANT_PREFIX": prefix})


def test_no_more_copies_are_waited_for_than_there_are():
    environ = {"LOREBANK_QDRANT_REPLICAS": "2", "LOREBANK_QDRANT_WRITE_CONSISTENCY": "3"}
    assert "no write would ever count" in refusal(environ)
    load_settings({**environ, "LOREBANK_QDRANT_REPLICAS": "3"})


def test_rows_mask_secrets_and_tell_the_source():
    url = "postgresql://lore:hunter2@db/lore"
    loaded = load_settings({"LOREBANK_DATABASE_URL": url, "LOREBANK_EMBEDDING_API_KEY": "sk-1"})
    rows = {row.name: row for row in describe(loaded)}
    assert len(rows) == len(Settings.model_fields)
    assert rows["LOREBANK_DATABASE_URL"].value == "**********"
    assert rows["LOREBANK_DATABASE_URL"].source == "environment"
    assert rows["LOREBANK_EMBEDDING_MODEL"].value == ""
    assert all(row.meaning for row in rows.values())
    assert "hunter2" not in f"{rows} {loaded}"
    assert "sk-1" not in f"{rows} {loaded}"
    assert loaded.settings.database_url.get_secret_value() == url


def test_the_configuration_page_is_fresh():
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert page == render_config_reference()
