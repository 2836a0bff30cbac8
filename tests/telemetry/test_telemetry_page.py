"""``docs/telemetry.md`` names what there is, and nothing else."""

import re
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

from lorebank_server.embedding import model_time
from lorebank_server.ports import stages
from lorebank_server.ports.backlog import Backlog
from lorebank_server.telemetry.grpc_interceptor import RPC_SERVER_CALL_DURATION
from lorebank_server.telemetry.metrics import SCHEMA_URL
from lorebank_server.telemetry.observed import observe

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "telemetry.md").read_text()


def first_column(heading: str) -> set[str]:
    """The names at the beginning of the rows of the table under a heading."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `([^`]+)`", section, re.MULTILINE))


def test_the_page_names_every_metric(measured):
    counts = SimpleNamespace(
        waiting=0, hits=0, misses=0, get_size=lambda: 1, get_idle_size=lambda: 1, get_max_size=lambda: 1
    )
    observe(
        measured.provider,
        pools={"requests": counts},
        caches={"query": counts},
        backlog=Backlog(rows=0),
        calls_under_way=lambda: 0,
        clock=lambda: datetime.now(UTC),
    )
    (resource,) = measured.reader.get_metrics_data().resource_metrics
    observed = {metric.name for scope in resource.scope_metrics for metric in scope.metrics}
    recorded = {RPC_SERVER_CALL_DURATION, stages.STAGE_DURATION, model_time.MODEL_DURATION, model_time.TEXTS}
    assert first_column("Metrics") == observed | recorded


def test_the_page_names_every_stage():
    sources = (path.read_text() for path in (ROOT / "server").rglob("*.py"))
    used = {f"lorebank.{name}" for source in sources for name in re.findall(r"\bstage\(\"([a-z_]+)\"", source)}
    assert {"lorebank.embed", "lorebank.dense"} <= used
    assert used == {name for name in first_column("Spans") if name.startswith("lorebank.") and "/" not in name}


def test_the_page_names_the_edition_of_the_conventions():
    assert f"schema {SCHEMA_URL.rpartition('/')[2]}" in PAGE
