"""A measurement from beginning to end: a server and its memories, or a server that runs; then the load."""

import json
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Final

import platformdirs

from lorebank_server.bench.corpus import DESCRIPTION, Corpus, queries
from lorebank_server.bench.failures import BenchError
from lorebank_server.bench.load_generator import Target, load_generator
from lorebank_server.bench.loading import ForeignDataError, Loaded, load
from lorebank_server.bench.machine import describe
from lorebank_server.bench.measurement import Measurement, Step, judge
from lorebank_server.bench.otlp_receiver import receiving
from lorebank_server.bench.own_server import free_port, own_server
from lorebank_server.bench.processes import Meter
from lorebank_server.bench.report import Run
from lorebank_server.bench.vectors import Embedded, Source, vectors_of
from lorebank_server.config import Settings, load_settings
from lorebank_server.embedding_backend import embedding_spec
from lorebank_server.event_loop import run
from lorebank_server.postgres import embedded as embedded_postgres

_CHANNELS_PER_WORKER: Final = 8
_REPEATED_QUERIES: Final = 100
_MANIFEST: Final = "bench.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What ``lorebank bench`` was asked for; the command line explains each.

    Attributes:
        rates: Ascending, ``rate`` among them.
        settings: Variables of a server of its own.
        target: A server that runs; None starts one.
    """

    memories: int
    vectors: Source
    rate: float
    rates: tuple[float, ...]
    duration_s: float
    warm_up_s: float
    concurrency: int
    query_cache: bool
    workers: int
    seed: int
    settings: Mapping[str, str]
    target: Target | None
    otlp_listen: str
    cache: Path | None
    data: Path | None


def run_bench(options: Options) -> Run:
    """Measure, saying on standard error how far it is.

    Raises:
        ConfigurationError: A setting is wrong.
        EmbeddedPostgresError: Postgres or the data folder will not do.
        BenchError: The folder holds other memories, the server did not start, or traces cannot be received.
        LorebankError: The model or the database failed.
    """
    if options.target is not None:
        return run(_measure_running(options, options.target))
    settings = load_settings(options.settings, env_file=None).settings
    with _folder(options.data) as folder:
        corpus = Corpus(options.seed)
        embedded = run(_embed(options, corpus, settings))
        with (
            _manifest(folder / _MANIFEST, options, embedded) as known,
            embedded_postgres.start(folder / "data", settings.postgres_user) as postgres,
        ):
            loaded = run(load(postgres.dsn, corpus, embedded, known=known, progress=_tell))
        return run(_measure_own(options, folder, loaded, _facts(options, embedded, loaded)))


async def _embed(options: Options, corpus: Corpus, settings: Settings) -> Embedded:
    return await vectors_of(
        corpus,
        options.memories,
        spec=embedding_spec(settings),
        source=options.vectors,
        folder=options.cache or platformdirs.user_cache_path("lorebank") / "bench",
        progress=_tell,
    )


async def _measure_own(options: Options, folder: Path, loaded: Loaded, facts: list[tuple[str, str]]) -> Run:
    variables = {
        "LOREBANK_WORKERS": str(options.workers),
        **({} if options.query_cache else {"LOREBANK_QUERY_CACHE_SIZE": "0"}),
        **options.settings,
    }
    # The server comes first: it is to be forked before gRPC starts its threads.
    otlp_listen = f"127.0.0.1:{free_port()}"
    async with own_server(folder, endpoint=f"http://{otlp_listen}", variables=variables) as server:
        channels = _CHANNELS_PER_WORKER * options.workers
        target = Target(server.address, api_key=loaded.secret, channels=channels)
        async with _measurement(options, target, otlp_listen, Meter(server.pid)) as measurement:
            return await _measure(options, measurement, facts, title=f"{loaded.memories} memories")


async def _measure_running(options: Options, target: Target) -> Run:
    facts = [("Server", f"{target.address}, with whatever memories it holds")]
    async with _measurement(options, target, options.otlp_listen, Meter(None)) as measurement:
        return await _measure(options, measurement, facts, title=target.address)


@asynccontextmanager
async def _measurement(options: Options, target: Target, otlp_listen: str, meter: Meter) -> AsyncIterator[Measurement]:
    asked = queries(options.seed)
    if options.query_cache:
        asked = cycle(list(islice(asked, _REPEATED_QUERIES)))
    async with AsyncExitStack() as stack:
        try:
            receiver = await stack.enter_async_context(receiving(otlp_listen))
        except RuntimeError as error:
            raise BenchError(
                f"Traces cannot be received on {otlp_listen}: {error}. Name another --otlp-listen."
            ) from error
        generator = await stack.enter_async_context(load_generator(target, seed=options.seed))
        yield Measurement(generator, receiver, meter, queries=asked, seed=options.seed)


async def _measure(options: Options, measurement: Measurement, facts: list[tuple[str, str]], *, title: str) -> Run:
    _tell("warming up")
    # What is asked again and again is asked once before it counts.
    least_s = _REPEATED_QUERIES / options.rate if options.query_cache else 0.0
    warm_up_s = max(options.warm_up_s, least_s)
    await measurement.warm_up(rate=options.rate, duration_s=warm_up_s, concurrency=options.concurrency)
    steps: dict[float, Step] = {}
    for rate in options.rates:
        _tell(f"measuring {rate:g} calls/s for {options.duration_s:g} s")
        steps[rate] = await measurement.step(rate=rate, duration_s=options.duration_s, concurrency=options.concurrency)
    judged = steps[options.rate]
    asked = f"{_REPEATED_QUERIES} in turns" if options.query_cache else "none twice"
    load_fact = (
        f"{options.duration_s:g} s a rate, due at the times of a Poisson process with seed {options.seed}, at most "
        f"{options.concurrency} calls at once; queries {DESCRIPTION}, {asked}"
    )
    facts = [*facts, ("Load", load_fact), ("Machine", describe())]
    return Run(title, tuple(facts), tuple(steps.values()), judged, judge(judged))


def _facts(options: Options, embedded: Embedded, loaded: Loaded) -> list[tuple[str, str]]:
    cache = "on" if options.query_cache else "off"
    made = f"{embedded.fresh} made in {embedded.seconds:.1f} s" if embedded.fresh else "all read from the cache"
    mixed = ", mixed from those of parts of the texts" if options.vectors == "mixed" else ""
    written = "all were there before"
    if loaded.fresh:
        written = (
            f"{loaded.fresh} written in {loaded.write_s:.1f} s ({loaded.fresh / loaded.write_s:.0f}/s), counted and "
            f"indexed in {loaded.index_s:.1f} s"
        )
    given = "".join(f", {name}={value}" for name, value in options.settings.items())
    return [
        ("Server", f"of its own, serving processes: {options.workers}, cache of query vectors: {cache}{given}"),
        ("Memories", f"{loaded.memories}, {DESCRIPTION}; {written}"),
        ("Vectors", f"of {embedded.model}, {embedded.dimensions} dimensions{mixed}; {made}"),
    ]


@contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    """The folder to keep, or a temporary one; another account may pass through: as root, Postgres runs under one."""
    if kept is not None:
        kept.mkdir(mode=0o755, parents=True, exist_ok=True)
        yield kept.absolute()
        return
    folder = Path(tempfile.mkdtemp(prefix="lorebank-bench-"))
    try:
        folder.chmod(0o755)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _manifest(file: Path, options: Options, embedded: Embedded) -> Iterator[int]:
    """Note what the folder is about to hold, and say how many memories of that it may hold already."""
    contents = {"seed": options.seed, "vectors": options.vectors, "model": embedded.model}
    before = file.read_text() if file.exists() else None
    held = json.loads(before) if before else {"memories": 0}
    known = int(held.pop("memories"))
    if held != contents:
        known = 0
    file.write_text(json.dumps({**contents, "memories": max(known, options.memories)}))
    try:
        yield known
    except ForeignDataError:
        if before is not None:
            file.write_text(before)
        else:
            file.unlink()
        raise


def _tell(progress: str) -> None:
    end = "\n"
    if sys.stderr.isatty():
        progress, end = f"\r\x1b[K{progress}", ""
    print(progress, end=end, file=sys.stderr, flush=True)
