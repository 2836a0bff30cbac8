"""Structured logs on standard error, for this program and for the libraries below it.

Events have constant names and carry what varies as keys: ``log.info("server_started", listen=listen)``. A line of a
library is the event ``library_message`` with its text, first line only, under ``message``.
"""

import logging
import sys
from typing import Any, Final, Literal

import structlog
from opentelemetry import trace
from structlog.typing import EventDict, Processor, WrappedLogger

from lorebank_server.telemetry.redaction import render_exception, without_private_values

LIBRARY_EVENT: Final = "library_message"

Format = Literal["auto", "json", "console"]


def configure_logging(level: str, log_format: Format) -> None:
    """Send the logs of structlog and of the standard library through one renderer to standard error.

    It replaces the handlers of the root logger, so that calling it again is harmless.

    Args:
        level: debug, info, warning or error; lower lines are dropped.
        log_format: json (one object a line), console, or auto: console on a terminal, else json.
    """
    threshold = logging.getLevelNamesMapping()[level.upper()]
    console = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        add_trace,
        render_exception,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, as_library_message],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                without_private_values,
                _renderer(console=console),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(threshold)


def add_trace(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Name the current trace and span, if there is one, as ``trace_id`` and ``span_id``."""
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"] = trace.format_trace_id(context.trace_id)
        event["span_id"] = trace.format_span_id(context.span_id)
    return event


def as_library_message(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Give a line of the standard library's logging the constant event name.

    Only the first line of its text is kept: asyncio puts the repr of failed tasks, messages and all, on the others.
    """
    lines = str(event.get("event", "")).splitlines() or [""]
    event["message"] = lines[0]
    event["event"] = LIBRARY_EVENT
    return event


def _renderer(*, console: bool) -> Processor:
    if not console:
        return structlog.processors.JSONRenderer(default=_plain)
    # The default for exceptions would print local variables.
    return structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)


def _plain(value: Any) -> str:
    return str(value)
