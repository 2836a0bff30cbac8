"""The settings of the server: one frozen object, read once, from the environment and ``.env``.

A variable of the environment beats ``.env`` in the working directory, which beats the default. An empty value
counts as not given. A name that begins with ``LOREBANK_`` and means nothing is an error, because a misspelt
setting that is silently ignored is worse than a server that does not start.
"""

import difflib
import ipaddress
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, Self

import platformdirs
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

PREFIX: Final = "LOREBANK_"

RESERVED_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "LOREBANK_SERVER": "Address of the server that the client and the command line talk to.",
        "LOREBANK_API_KEY": "Credential that the client and the command line send.",
        "LOREBANK_SPACE": "Space that the client and the command line work in.",
        "LOREBANK_SUPERVISED": "Set by the supervisor for the processes it starts; not for you to set.",
    }
)
"""Names that belong to other parts of Lorebank: known here so that they are not refused."""

TEST_PREFIX: Final = "LOREBANK_TEST_"

SECRET_MASK: Final = "**********"  # noqa: S105 - the mask, not a secret

Source = Literal["default", "environment", ".env"]

_LISTEN: Final = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)):(?P<port>[0-9]{1,5})"
)
# Kubernetes and container links announce a service called lorebank by variables of their own.
_SERVICE_LINK: Final = re.compile(r"\w+_(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")
_SERVICE_ADDRESS: Final = re.compile(r"(tcp|udp|sctp)://")


class ConfigurationError(Exception):
    """The server cannot start with the settings it was given; the message says what to change."""


def split_listen(listen: str) -> tuple[str, int]:
    """Split ``host:port`` into host (an IPv6 address without its brackets) and port.

    Raises:
        ValueError: It is not ``host:port`` with a port from 0 to 65535.
    """
    match = _LISTEN.fullmatch(listen)
    if match is None or int(match["port"]) > 65535 or match["host"] == "unix":
        raise ValueError(
            "expected host:port, for example 127.0.0.1:50051 or [::1]:50051; "
            "sockets by path are not served, and 0.0.0.0 means every interface"
        )
    if match["v6"] is None:
        return match["host"], int(match["port"])
    return str(ipaddress.IPv6Address(match["v6"])), int(match["port"])


def _checked_listen(listen: str) -> str:
    split_listen(listen)
    return listen


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


def _checked_postgres_url(url: SecretStr) -> SecretStr:
    if not url.get_secret_value().startswith(("postgresql://", "postgres://")):
        raise ValueError("expected postgresql://user:password@host:port/database")
    return url


def _checked_http_url(url: str) -> str:
    if not re.fullmatch(r"https?://[^\s/]+\S*", url):
        raise ValueError("expected an address that begins with http:// or https://")
    return url


def _checked_qdrant_url(url: str) -> str:
    match = re.fullmatch(r"https?://(?:\[[0-9A-Fa-f:.]+\]|[^\s/:@?#\[\]]+)(?::(?P<port>[0-9]{1,5}))?/?", url)
    if match is None or int(match["port"] or 1) > 65535:
        raise ValueError("expected http://host:6334 or https://host:6334, without a path; 6334 is Qdrant's gRPC port")
    if match["port"] == "6333":
        raise ValueError(
            "6333 is Qdrant's HTTP port; expected its gRPC port, which is 6334 unless it was set otherwise"
        )
    return url


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _default_data_dir() -> Path:
    if os.geteuid() == 0:
        return Path("/var/lib/lorebank")
    return platformdirs.user_data_path("lorebank")


def _default_embedding_threads() -> int:
    return min(4, os.cpu_count() or 1)


def _check_embedder(prefix: str, url: str | None, model_dir: Path | None, model: str | None) -> None:
    name = f"{PREFIX}{prefix}EMBEDDING"
    if url is not None and model_dir is not None:
        raise ValueError(f"{name}_URL and {name}_MODEL_DIR exclude each other: set one of them")
    if url is not None and model is None:
        raise ValueError(f"{name}_URL needs {name}_MODEL: name the model to ask for")


class Settings(BaseSettings):
    """Everything the server can be told; see ``docs/configuration.md``.

    Build it with ``load_settings``. Building it directly reads neither the environment nor ``.env``.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="forbid", hide_input_in_errors=True
    )

    listen: Annotated[str, AfterValidator(_checked_listen)] = Field(
        default="127.0.0.1:50051",
        description="Address the server listens on, as host:port; an IPv6 address stands in brackets.",
    )
    workers: int = Field(
        default=1,
        ge=1,
        le=64,
        description=(
            "Processes that serve the address together. The system spreads connections over them, not calls: a client "
            "with one connection is served by one of them. What a setting allows a serving process, each has: "
            "connections to Postgres, threads of the embedding model, cached vectors."
        ),
    )
    data_dir: Annotated[Path, AfterValidator(_absolute)] = Field(
        default_factory=_default_data_dir,
        description="Folder of the embedded Postgres; not used with an outside database.",
        json_schema_extra={
            "default": "the user's data folder (Linux: ~/.local/share/lorebank); as root /var/lib/lorebank"
        },
    )
    database_url: Annotated[SecretStr, AfterValidator(_checked_postgres_url)] | None = Field(
        default=None,
        description="Outside Postgres with pgvector, as postgresql://...; not set: an embedded Postgres.",
    )
    postgres_user: str | None = Field(
        default=None,
        description="Unprivileged account that runs the embedded Postgres when the server is started by root.",
        json_schema_extra={"default": "postgres if there is such an account, else nobody"},
    )
    database_pool_size: int = Field(
        default=16, ge=1, le=1000, description="Most connections one server process holds to Postgres."
    )
    qdrant_url: Annotated[str, AfterValidator(_checked_qdrant_url)] | None = Field(
        default=None,
        description=(
            "Address of the gRPC port of a Qdrant server (1.15 or later) or cluster that searches vectors, as "
            "http://host:6334 or, with TLS, https://host:6334; not set: Postgres searches them."
        ),
    )
    qdrant_api_key: SecretStr | None = Field(
        default=None, description="Credential for Qdrant; over http:// it can be read on the way."
    )
    qdrant_ca_file: Annotated[Path, AfterValidator(_absolute)] | None = Field(
        default=None,
        description="File of certificates (PEM) to trust when Qdrant is reached by https://.",
        json_schema_extra={"default": "those that gRPC brings"},
    )
    qdrant_timeout_s: float = Field(
        default=2.0, gt=0, le=300, description="Longest wait for Qdrant's answer to a search, in seconds."
    )
    qdrant_write_timeout_s: float = Field(
        default=10.0, gt=0, le=300, description="Longest wait for Qdrant's answer to a write, in seconds."
    )
    qdrant_prefix: str = Field(
        default="lorebank",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$",
        description="Begins the names of the collections in Qdrant; one for each Lorebank that shares a Qdrant.",
    )
    qdrant_hnsw_ef: int = Field(
        default=128,
        ge=1,
        le=10_000,
        description="Neighbours a search in Qdrant keeps in view: more find more exactly, and take longer.",
    )
    qdrant_exact: bool = Field(
        default=False, description="Let Qdrant compare with every vector instead of using its index; slow."
    )
    qdrant_oversampling: float = Field(
        default=2.0,
        ge=1,
        le=100,
        description="With quantisation, how many times the results asked for are compared by their full vectors.",
    )
    qdrant_quantization: Annotated[Literal["none", "int8"], BeforeValidator(_lower)] = Field(
        default="none",
        description=(
            "int8: search by vectors of a quarter of the size, then by the full ones. As the settings that follow, "
            "for collections made from now on."
        ),
    )
    qdrant_on_disk: bool = Field(default=False, description="Keep full vectors and their filters on disk in Qdrant.")
    qdrant_payload_m: int = Field(
        default=16, ge=1, le=1000, description="Edges of each vector in the index of its space."
    )
    qdrant_ef_construct: int = Field(
        default=128, ge=1, le=10_000, description="Neighbours looked at when a vector is put into the index."
    )
    qdrant_shards: int | None = Field(
        default=None,
        ge=1,
        le=10_000,
        description="Shards of a collection.",
        json_schema_extra={"default": "what Qdrant chooses"},
    )
    qdrant_replicas: int | None = Field(
        default=None,
        ge=1,
        le=100,
        description="Copies of each shard.",
        json_schema_extra={"default": "what Qdrant chooses"},
    )
    qdrant_write_consistency: int | None = Field(
        default=None,
        ge=1,
        le=100,
        description=(
            "Copies that must have a write before it counts. As many as there are: every search finds every write at "
            "once, and one lost copy holds writes up."
        ),
        json_schema_extra={"default": "what Qdrant chooses"},
    )
    embedding_model_dir: Annotated[Path, AfterValidator(_absolute)] | None = Field(
        default=None,
        description="Folder of a local ONNX embedding model to use in place of the one that comes with Lorebank.",
    )
    embedding_url: Annotated[str, AfterValidator(_checked_http_url)] | None = Field(
        default=None,
        description="Address of an embedding service that speaks the OpenAI protocol, in place of a local model.",
    )
    embedding_api_key: SecretStr | None = Field(default=None, description="Credential for the embedding service.")
    embedding_model: str | None = Field(default=None, description="Name of the model to ask the embedding service for.")
    embedding_dimensions: int | None = Field(
        default=None,
        ge=1,
        le=4000,
        description="Length of the vectors that the embedding service answers with.",
        json_schema_extra={"default": "what the model gives"},
    )
    next_embedding_model_dir: Annotated[Path, AfterValidator(_absolute)] | None = Field(
        default=None,
        description=(
            "Folder of another local model, loaded beside the first, for spaces that `lorebank reindex --model` moves "
            "from one of them to the other while the server serves. The packaged model is known without it. Spaces of "
            "either model are served."
        ),
    )
    next_embedding_url: Annotated[str, AfterValidator(_checked_http_url)] | None = Field(
        default=None, description="Address of the embedding service of that other model, in place of a folder."
    )
    next_embedding_api_key: SecretStr | None = Field(default=None, description="Credential for that service.")
    next_embedding_model: str | None = Field(default=None, description="Name of the model to ask that service for.")
    next_embedding_dimensions: int | None = Field(
        default=None,
        ge=1,
        le=4000,
        description="Length of the vectors that that service answers with.",
        json_schema_extra={"default": "what the model gives"},
    )
    embedding_threads: int = Field(
        default_factory=_default_embedding_threads,
        ge=1,
        le=256,
        description="Threads that run the local embedding model.",
        json_schema_extra={"default": "number of CPUs, at most 4"},
    )
    embedding_timeout_s: float = Field(
        default=10.0, gt=0, le=300, description="Longest wait for one answer of the embedding service, in seconds."
    )
    query_cache_size: int = Field(
        default=4096, ge=0, le=10_000_000, description="Search queries whose vectors are kept in memory; 0: none."
    )
    max_message_bytes: int = Field(
        default=4 * 1024 * 1024,
        ge=1024,
        le=2**31 - 1,
        description="Largest request and response, in bytes; a longer one is refused.",
    )
    metrics_listen: Annotated[str, AfterValidator(_checked_listen)] | None = Field(
        default=None,
        description=(
            "Address of a page of metrics for Prometheus, as host:port; not set: no page. Whoever reaches it may read "
            "it without a credential, so keep it on loopback or on a network of your own. It holds counts and times, "
            "nothing of any memory. Of several serving processes, each has a page of its own, on this port and those "
            "that follow."
        ),
    )
    drain_grace_s: float = Field(
        default=20.0, ge=0, le=3600, description="Time that calls under way are given at shutdown, in seconds."
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)] = Field(
        default="info", description="Least severe log lines to write: debug, info, warning or error."
    )
    log_format: Annotated[Literal["auto", "json", "console"], BeforeValidator(_lower)] = Field(
        default="auto", description="Form of log lines: json, console, or auto (console on a terminal, else json)."
    )
    auth: Annotated[Literal["auto", "required"], BeforeValidator(_lower)] = Field(
        default="auto",
        description=(
            "required: every call needs a credential. auto: as long as no API key was ever created and the server "
            "listens on loopback only, a caller without a credential is the admin of the space `default`."
        ),
    )

    @model_validator(mode="after")
    def _one_embedder(self) -> Self:
        _check_embedder("", self.embedding_url, self.embedding_model_dir, self.embedding_model)
        _check_embedder("NEXT_", self.next_embedding_url, self.next_embedding_model_dir, self.next_embedding_model)
        return self

    @model_validator(mode="after")
    def _enough_replicas(self) -> Self:
        replicas, consistency = self.qdrant_replicas, self.qdrant_write_consistency
        if replicas is not None and consistency is not None and consistency > replicas:
            raise ValueError(
                "LOREBANK_QDRANT_WRITE_CONSISTENCY is larger than LOREBANK_QDRANT_REPLICAS: no write would ever count"
            )
        return self

    @property
    def listens_on_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        host, _ = split_listen(self.listen)
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host.lower() == "localhost"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the names are given by the library
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take values from the caller alone: ``load_settings`` reads the outside and notes what came from where."""
        return (init_settings,)


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The settings and where each came from.

    Attributes:
        settings: The checked settings.
        sources: Source of each field, by field name; complete.
    """

    settings: Settings
    sources: Mapping[str, Source]


def load_settings(environ: Mapping[str, str] | None = None, env_file: str | Path | None = ".env") -> LoadedSettings:
    """Read, check and freeze the settings.

    Args:
        environ: The environment; not given: that of this process.
        env_file: File of further variables, relative to the working directory; None or absent: no file. Names
            in it without the prefix belong to other programs.

    Raises:
        ConfigurationError: Names that mean nothing, or values that do not fit, all of a kind in one message;
            or a file that cannot be read.
    """
    environment = EnvSettingsSource(Settings)
    environment.env_vars = {
        name.lower(): value for name, value in (os.environ if environ is None else environ).items() if value
    }
    try:
        file = DotEnvSettingsSource(Settings, env_file=env_file, dotenv_filtering="only_existing")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{env_file} cannot be read as UTF-8 text: {type(error).__name__}") from error
    _refuse_unknown([*environment.env_vars.items(), *file.env_vars.items()])
    from_file, from_environment = file(), environment()
    values = {**from_file, **from_environment}
    sources: dict[str, Source] = {
        name: "environment" if name in from_environment else ".env" if name in from_file else "default"
        for name in Settings.model_fields
    }
    try:
        return LoadedSettings(settings=Settings(**values), sources=MappingProxyType(sources))
    except ValidationError as error:
        message = "\n".join(_complaints(error, values, sources))
    raise ConfigurationError(message)


def variable_name(field: str) -> str:
    """Name of the environment variable of a field of ``Settings``."""
    return PREFIX + field.upper()


def is_secret(field: str) -> bool:
    """Whether the value of a field of ``Settings`` must not be shown."""
    return "SecretStr" in str(Settings.model_fields[field].annotation)


def _refuse_unknown(variables: Iterable[tuple[str, str | None]]) -> None:
    known = [variable_name(field) for field in Settings.model_fields] + list(RESERVED_NAMES)
    unknown = sorted(
        {
            name
            for name, value in ((raw.upper(), value or "") for raw, value in variables)
            if name.startswith(PREFIX)
            and name not in known
            and not name.startswith(TEST_PREFIX)
            and not _is_service_link(name, value)
        }
    )
    if unknown:
        raise ConfigurationError("\n".join(_unknown_name(name, known) for name in unknown))


def _is_service_link(name: str, value: str) -> bool:
    if name.endswith("_PORT") and _SERVICE_ADDRESS.match(value):
        return True
    return _SERVICE_LINK.fullmatch(name) is not None


def _unknown_name(name: str, known: list[str]) -> str:
    closest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
    return f"{name} is no setting of Lorebank; the closest is {closest}"


def _complaints(error: ValidationError, values: Mapping[str, Any], sources: Mapping[str, Source]) -> Iterable[str]:
    for detail in error.errors(include_url=False, include_input=False, include_context=False):
        expected = detail["msg"].removeprefix("Value error, ").replace("Input should", "it should")
        if not detail["loc"]:
            yield expected
            continue
        field = str(detail["loc"][0])
        shown = SECRET_MASK if is_secret(field) else repr(values.get(field))
        yield f"{variable_name(field)} is {shown} (from {sources[field]}): {expected}"
