"""Health by the standard protocol: serving as long as Postgres answers."""

import asyncio
from typing import Final

from grpc_health.v1 import health
from grpc_health.v1.health_pb2 import HealthCheckResponse

from lorebank.v1 import knowledge_service_pb2, memory_service_pb2, space_service_pb2
from lorebank_server.domain.errors import StorageUnavailableError
from lorebank_server.operations.services import Services

SERVICE_NAMES: Final = (
    memory_service_pb2.DESCRIPTOR.services_by_name["MemoryService"].full_name,
    knowledge_service_pb2.DESCRIPTOR.services_by_name["KnowledgeService"].full_name,
    space_service_pb2.DESCRIPTOR.services_by_name["SpaceService"].full_name,
)
"""The services of the contract, as health and reflection name them."""

CHECK_TIMEOUT_S: Final = 5.0
INTERVAL_S: Final = 3.0
"""With the time that a check may take, a database that went away without a word shows within eight seconds."""

AWAY_INTERVAL_S: Final = 1.0
"""While it is away: who was sent elsewhere should come back as soon as there is something to come back to."""

_NOT_SERVING: Final = HealthCheckResponse.NOT_SERVING
_ALL: Final = ("", *SERVICE_NAMES)


class HealthServicer(health.aio.HealthServicer):  # type: ignore[misc]
    """gRPC's own servicer, which knows every service from the start: NOT_SERVING until told otherwise."""

    def __init__(self) -> None:
        super().__init__()
        # What is public can only be awaited, and nobody listens yet.
        self._server_status = dict.fromkeys(_ALL, _NOT_SERVING)


async def watch_storage(services: Services, servicer: HealthServicer, *, interval_s: float = INTERVAL_S) -> None:
    """Report what storage answers for every service, at once and every ``interval_s``, until cancelled.

    No answer within ``CHECK_TIMEOUT_S`` counts as storage being away; then it is asked more often.
    """
    while True:
        status = HealthCheckResponse.SERVING
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                await services.storage.check()
        except (StorageUnavailableError, TimeoutError):
            status = _NOT_SERVING
        for service in _ALL:
            await servicer.set(service, status)
        await asyncio.sleep(interval_s if status != _NOT_SERVING else min(interval_s, AWAY_INTERVAL_S))
