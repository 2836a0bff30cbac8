"""What several serving processes need that one does not: a shared address, ports of their own, and connections."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from lorebank_server.config import ConfigurationError, Settings, split_listen
from lorebank_server.listen_address import reserved
from lorebank_server.postgres.cluster import SETTINGS

_BACKGROUND_CONNECTIONS: Final = 8
"""What a serving process holds to Postgres besides its pools, with some to spare."""

_OTHER_CONNECTIONS: Final = 12
"""For whoever connects besides: commands, and somebody who looks."""

_LAST_PORT: Final = 65535


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """How the serving processes are to be started.

    Attributes:
        variables: What each has in its environment besides the common ones.
        postgres_settings: What an embedded Postgres is to be started with.
    """

    variables: tuple[Mapping[str, str], ...]
    postgres_settings: Mapping[str, str]


@contextmanager
def worker_plan(settings: Settings) -> Iterator[WorkerPlan]:
    """Plan the serving processes; while the block lasts, the address of several is kept for them.

    Raises:
        ConfigurationError: The address is taken, or there are too few ports for their pages of metrics.
    """
    if settings.workers == 1:
        yield WorkerPlan(variables=({},), postgres_settings={})
        return
    pools = settings.database_pool_size + max(2, settings.database_pool_size // 2)
    connections = settings.workers * (pools + _BACKGROUND_CONNECTIONS) + _OTHER_CONNECTIONS
    most = max(connections, int(SETTINGS["max_connections"]))
    with reserved(settings.listen) as listen:
        yield WorkerPlan(
            variables=tuple(
                {"LOREBANK_LISTEN": listen, **_metrics(settings, number)} for number in range(settings.workers)
            ),
            postgres_settings={"max_connections": str(most)},
        )


def _metrics(settings: Settings, number: int) -> Mapping[str, str]:
    """The page of metrics of one process; any free port stays any free port."""
    if settings.metrics_listen is None:
        return {}
    _, port = split_listen(settings.metrics_listen)
    if port == 0:
        return {}
    if port + number > _LAST_PORT:
        raise ConfigurationError(
            f"LOREBANK_METRICS_LISTEN is {settings.metrics_listen}, and {settings.workers} serving processes need as "
            f"many ports from there on: choose one up to {_LAST_PORT - settings.workers + 1}."
        )
    return {"LOREBANK_METRICS_LISTEN": f"{settings.metrics_listen.rpartition(':')[0]}:{port + number}"}
