"""``lorebank bench``."""

from pathlib import Path
from typing import Annotated, Final, Literal

from cyclopts import App, Parameter
from cyclopts.types import PositiveFloat, PositiveInt

from lorebank.cli.examples import examples
from lorebank.cli.failures import UsageError
from lorebank.cli.server_package import server_module
from lorebank.cli.session import Own

_DEFAULT_MEMORIES: Final = 10_000
_DEFAULT_RATE: Final = 20.0
_DEFAULT_DURATION_S: Final = 30.0
_DEFAULT_WARM_UP_S: Final = 3.0
_DEFAULT_CONCURRENCY: Final = 64
_DEFAULT_SEED: Final = 7
_DEFAULT_OTLP: Final = "127.0.0.1:4317"


def register(app: App) -> None:
    """Add the command."""
    app.command(
        bench,
        help_epilogue=examples(
            "lorebank bench",
            "lorebank bench --memories 100000 --rates 5,10,20,40 --plot latency.png --report latency.md",
            "lorebank bench --server 10.0.0.7:50051 --otlp-listen 0.0.0.0:4317 --rate 50",
        ),
    )


def bench(
    *,
    memories: PositiveInt = _DEFAULT_MEMORIES,
    vectors: Literal["model", "mixed"] = "model",
    rate: PositiveFloat = _DEFAULT_RATE,
    rates: str = "",
    duration: PositiveFloat = _DEFAULT_DURATION_S,
    warm_up: PositiveFloat = _DEFAULT_WARM_UP_S,
    concurrency: PositiveInt = _DEFAULT_CONCURRENCY,
    query_cache: Literal["on", "off"] = "off",
    workers: PositiveInt = 1,
    setting: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    seed: int = _DEFAULT_SEED,
    cache: Path | None = None,
    data: Annotated[Path | None, Parameter(name=("--data", "--keep"))] = None,
    otlp_listen: str = _DEFAULT_OTLP,
    report: Path | None = None,
    plot: Path | None = None,
    session: Own,
) -> int:
    """Measure how long Find takes, by the server's own spans, and whether its p95 is below 100 ms.

    A server of its own is started in a temporary folder and loaded with memories that are recombined from those of
    'lorebank demo'. With --server, the one there is measured as it is; it has to send its traces to --otlp-listen.
    Exit code 0: below 100 ms; 1: not, or calls failed, or spans are missing.

    Args:
        memories: How many to load.
        vectors: Embed every text (model, kept for the next time), or add up vectors of its parts (mixed, at once).
        rate: Calls a second, due at random times, whether or not answers keep up; the verdict is about this one.
        rates: Further rates, with commas between.
        duration: Seconds to call at each rate.
        warm_up: Seconds to call before that, without measuring; more memories want more.
        concurrency: Most calls at once.
        query_cache: Ask new questions with the server's cache of query vectors off, or the same 100 with it on.
        workers: Serving processes.
        setting: A variable for the server, as NAME=VALUE; may be repeated.
        seed: Another one makes other memories, questions and times.
        cache: Folder that keeps vectors; default: in the user's cache folder.
        data: Folder that keeps the loaded memories; the next time they are there already.
        otlp_listen: Where to receive the traces of --server, as host:port.
        report: Markdown file to write what is printed to.
        plot: PNG file to draw latency over --rates to.
        session: The global options.
    """
    all_rates = sorted({rate, *_numbers(rates)})
    if plot is not None and len(all_rates) == 1:
        raise UsageError("--plot draws latency over several rates: name them in --rates, for example 5,10,20,40.")
    code: int = server_module("lorebank_server.app").bench_command(
        memories=memories,
        vectors=vectors,
        rate=rate,
        rates=tuple(all_rates),
        duration_s=duration,
        warm_up_s=warm_up,
        concurrency=concurrency,
        query_cache=query_cache == "on",
        workers=workers,
        settings=dict(map(_variable, setting)),
        seed=seed,
        cache=cache,
        data=data,
        otlp_listen=otlp_listen,
        report=report,
        plot=plot,
        server=session.server,
        api_key=session.api_key,
        space=session.space,
        tls=session.tls or session.tls_roots is not None,
        tls_roots=session.tls_roots,
        as_json=session.json,
    )
    return code


def _numbers(text: str) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        numbers = [0.0]
    if any(number <= 0 for number in numbers):
        raise UsageError(f"--rates {text!r} must be numbers above 0 with commas between, for example 5,10,20,40.")
    return numbers


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise UsageError(f"--setting {text!r} must be NAME=VALUE, for example LOREBANK_EMBEDDING_THREADS=2.")
    return name, value
