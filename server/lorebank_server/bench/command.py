"""``lorebank bench`` as a function that returns an exit code."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lorebank_server.bench import picture
from lorebank_server.bench.failures import BenchError
from lorebank_server.bench.load_generator import Target
from lorebank_server.bench.report import as_document, render
from lorebank_server.bench.runner import Options, run_bench
from lorebank_server.bench.vectors import Source
from lorebank_server.config import ConfigurationError
from lorebank_server.domain.errors import LorebankError
from lorebank_server.postgres.embedded_errors import EmbeddedPostgresError
from lorebank_server.telemetry.logging import configure_logging

EXIT_KEPT: Final = 0
EXIT_NOT_KEPT: Final = 1
EXIT_REFUSED: Final = 78


def bench(
    *,
    memories: int,
    vectors: Source,
    rate: float,
    rates: tuple[float, ...],
    duration_s: float,
    warm_up_s: float,
    concurrency: int,
    query_cache: bool,
    workers: int,
    settings: Mapping[str, str],
    seed: int,
    cache: Path | None,
    data: Path | None,
    otlp_listen: str,
    report: Path | None,
    plot: Path | None,
    server: str,
    api_key: str,
    space: str,
    tls: bool,
    tls_roots: Path | None,
    as_json: bool,
) -> int:
    """Measure, print, and write what is wanted; the options are those of the command line.

    Returns:
        0 when the 95th percentile of Find is below 100 ms, 1 when not or when that cannot be said, 78 when nothing
        could be measured.
    """
    # The page alone belongs on standard output.
    configure_logging("warning", "auto")
    if plot is not None and not picture.can_draw():
        print(f"There will be no plot: {picture.MISSING}", file=sys.stderr)
        plot = None
    try:
        roots = tls_roots.read_bytes() if tls_roots else None
        target = Target(server, api_key=api_key, space=space, tls=tls, roots=roots) if server else None
        run = run_bench(
            Options(
                memories=memories,
                vectors=vectors,
                rate=rate,
                rates=rates,
                duration_s=duration_s,
                warm_up_s=warm_up_s,
                concurrency=concurrency,
                query_cache=query_cache,
                workers=workers,
                seed=seed,
                settings=settings,
                target=target,
                otlp_listen=otlp_listen,
                cache=cache,
                data=data,
            )
        )
    except LorebankError as error:
        print(error.message, file=sys.stderr)
        return EXIT_REFUSED
    except (BenchError, ConfigurationError, EmbeddedPostgresError, OSError) as error:
        print(error, file=sys.stderr)
        return EXIT_REFUSED
    page = render(run)
    print(json.dumps(as_document(run), indent=2) if as_json else page)
    if report is not None:
        report.write_text(f"{page}\n")
    if plot is not None:
        picture.draw(run.steps, plot, title=f"Latency of Find, {run.title}")
    return EXIT_KEPT if run.verdict.kept else EXIT_NOT_KEPT
