"""What each setting is, has and came from: for ``lorebank config`` and for ``docs/configuration.md``."""

from dataclasses import dataclass

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from lorebank_server.config import (
    RESERVED_NAMES,
    SECRET_MASK,
    LoadedSettings,
    Settings,
    Source,
    variable_name,
)

_INTRODUCTION = """\
# Configuration

The server runs without any setting. What it can be told, it is told by environment variables or by a file
`.env` in the working directory. The environment beats the file, the file beats the default, and an empty
value counts as not given. Settings are read once, at the start; `lorebank config` prints every setting, its
value and where it came from, with secrets masked.

A name that begins with `LOREBANK_` and is not listed here stops the start, with the closest name that is.
Names in `.env` without that prefix are left to the programs they belong to.

This page is generated from the settings themselves.

## Server

| Variable | Default | Meaning |
|---|---|---|
"""

_RESERVED = """
## Elsewhere

These names are read by other parts of Lorebank, and the server passes over them.

| Variable | Meaning |
|---|---|
"""

_TELEMETRY = """
## Traces and metrics

Both follow the standard variables of OpenTelemetry, and none are made until a receiver or an exporter is named;
`docs/telemetry.md` tells what there is.

| Variable | Meaning |
|---|---|
| `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT` | \
Receiver of both, or of one, over gRPC. |
| `OTEL_TRACES_EXPORTER` | `otlp`, `console` (one line of JSON a span, on standard error) or `none`. |
| `OTEL_METRICS_EXPORTER` | `otlp`, `prometheus`, `console` or `none`. |
| `OTEL_METRIC_EXPORT_INTERVAL` | Milliseconds between two exports of metrics; by default 60000. |
| `OTEL_SDK_DISABLED` | `true`: neither, whatever else is set. |
| `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES` | Who they say they are from; by default `lorebank`. |
| `OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG` | Which traces are kept; by default all. Metrics count all. |
"""


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting, ready to be shown; secrets are masked, and what is not set is the empty string.

    Attributes:
        name: Environment variable.
        value: Value in force.
        default: Default, in words where it depends on the machine.
        source: Where the value came from.
        meaning: One or two sentences.
    """

    name: str
    value: str
    default: str
    source: Source
    meaning: str


def describe(loaded: LoadedSettings) -> list[SettingRow]:
    """Every setting as a row, in the order of their definition."""
    return [
        SettingRow(
            name=variable_name(name),
            value=_shown(getattr(loaded.settings, name)),
            default=_default(field),
            source=loaded.sources[name],
            meaning=field.description or "",
        )
        for name, field in Settings.model_fields.items()
    ]


def render_config_reference() -> str:
    """The whole text of ``docs/configuration.md``, the same on every machine."""
    rows = [
        f"| `{variable_name(name)}` | {_cell(field)} | {field.description} |"
        for name, field in Settings.model_fields.items()
    ]
    reserved = [f"| `{name}` | {meaning} |" for name, meaning in RESERVED_NAMES.items()]
    return _INTRODUCTION + "\n".join(rows) + "\n" + _RESERVED + "\n".join(reserved) + "\n" + _TELEMETRY


def _shown(value: object) -> str:
    if value is None:
        return ""
    return SECRET_MASK if isinstance(value, SecretStr) else str(value)


def _in_words(field: FieldInfo) -> str | None:
    extra = field.json_schema_extra
    return str(extra["default"]) if isinstance(extra, dict) else None


def _default(field: FieldInfo) -> str:
    return _in_words(field) or _shown(field.default)


def _cell(field: FieldInfo) -> str:
    words = _in_words(field)
    if words is not None:
        return words
    return "not set" if field.default is None else f"`{_shown(field.default)}`"
