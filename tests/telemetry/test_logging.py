import json
import logging
from datetime import datetime, timedelta

import asyncpg
import pytest
import structlog
from opentelemetry.sdk.trace import TracerProvider

from lorebank_server.telemetry.logging import configure_logging
from lorebank_server.telemetry.redaction import describe_exception, without_private_values


@pytest.fixture(autouse=True)
def restored_logging():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def fail(error, cause=None):
    raise error from cause


def lines(capsys):
    captured = capsys.readouterr()
    assert captured.out == ""
    return [json.loads(line) for line in captured.err.splitlines()]


def test_a_line_is_one_json_object_with_a_utc_time(capsys):
    configure_logging("info", "json")
    structlog.get_logger("lorebank_server.app").info("server_started", listen="127.0.0.1:1")
    (line,) = lines(capsys)
    assert datetime.fromisoformat(line.pop("timestamp")).utcoffset() == timedelta(0)
    assert line == {
        "event": "server_started",
        "level": "info",
        "logger": "lorebank_server.app",
        "listen": "127.0.0.1:1",
    }


def test_libraries_log_through_the_same_renderer_with_a_constant_event(capsys):
    configure_logging("warning", "json")
    logging.getLogger("grpc._cython").warning("lost %s\nmore", "peer")
    logging.getLogger("asyncpg").info("not severe enough")
    (line,) = lines(capsys)
    assert line["event"] == "library_message"
    assert line["message"] == "lost peer"
    assert line["logger"] == "grpc._cython"


def test_lines_below_the_level_are_dropped(capsys):
    configure_logging("error", "json")
    structlog.get_logger().warning("dropped")
    assert lines(capsys) == []


def test_configuring_twice_writes_each_line_once(capsys):
    configure_logging("info", "json")
    configure_logging("info", "json")
    structlog.get_logger().info("once")
    assert len(lines(capsys)) == 1


@pytest.mark.parametrize("log_format", ["console", "json"])
@pytest.mark.parametrize("library", [False, True])
def test_exceptions_show_no_local_variables(log_format, library, capsys):
    configure_logging("info", log_format)
    remembered = "the cat sleeps"
    try:
        fail(RuntimeError(f"length {len(remembered)}"))
    except RuntimeError:
        logger = logging.getLogger("library") if library else structlog.get_logger()
        logger.exception("failed")
    written = capsys.readouterr().err
    assert "RuntimeError: length 14" in written
    assert "in test_exceptions_show_no_local_variables" in written
    assert remembered not in written


def test_causes_and_groups_are_rendered(capsys):
    configure_logging("info", "json")
    try:
        fail(ExceptionGroup("several", [ValueError("a"), OSError("b")]), cause=KeyError("first"))
    except ExceptionGroup:
        structlog.get_logger().exception("failed")
    (line,) = lines(capsys)
    assert "KeyError: 'first'\nwhich led to:" in line["exception"]
    assert "ExceptionGroup: several (2 sub-exceptions)" in line["exception"]
    assert "of which number 2:\nOSError: b" in line["exception"]


def postgres_error(kind, message):
    return kind.new({"C": kind.sqlstate, "M": message, "D": "Key (content)=(the cat) exists."})


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            postgres_error(asyncpg.UniqueViolationError, "the cat"),
            "UniqueViolationError: [message withheld] 23505",
        ),
        (
            postgres_error(asyncpg.UndefinedTableError, "no relation x"),
            "UndefinedTableError: no relation x 42P01",
        ),
        (asyncpg.InterfaceError("pool is closed"), "InterfaceError: pool is closed"),
        (
            asyncpg.exceptions._base.DataError("invalid input for query argument $1: 'the cat'"),
            "DataError: [message withheld]",
        ),
        (ValueError("first\nsecond"), "ValueError: first"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_messages_that_may_quote_rows_are_withheld(error, expected):
    assert describe_exception(error) == expected


PRIVATE_KEYS = """
content memory_text Query query_vector embedding authorization client_secret tokens page_token postgres_password
database_url x-api-key
"""


@pytest.mark.parametrize("key", PRIVATE_KEYS.split())
def test_keys_that_could_hold_text_or_credentials_are_redacted(key):
    assert without_private_values(None, "info", {key: "private"}) == {key: "[redacted]"}
    assert without_private_values(None, "info", {"outer": {key: ["private"]}}) == {"outer": {key: "[redacted]"}}


def test_counts_and_harmless_names_stay():
    event = {"event": "x", "query_chars": 12, "text": None, "context": "c", "embedding_model": "m", "texture": "t"}
    assert without_private_values(None, "info", event) == event


def test_credentials_in_addresses_are_masked(capsys):
    configure_logging("info", "json")
    logging.getLogger("httpx").warning("lost http://me:hunter2@host/v1")
    try:
        fail(OSError("no answer from postgresql://me:hunter2@db/x"))
    except OSError:
        structlog.get_logger().exception("failed", address="redis://:hunter2@cache")
    written = capsys.readouterr().err
    assert "hunter2" not in written
    assert "http://***@host/v1" in written


def test_lines_within_a_span_name_its_trace(capsys):
    configure_logging("info", "json")
    with TracerProvider(shutdown_on_exit=False).get_tracer("test").start_as_current_span("x") as span:
        structlog.get_logger().info("within")
    (line,) = lines(capsys)
    assert int(line["trace_id"], 16) == span.get_span_context().trace_id
    assert int(line["span_id"], 16) == span.get_span_context().span_id
