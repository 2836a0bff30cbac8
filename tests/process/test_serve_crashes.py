"""SIGKILL at random moments under load: nothing acknowledged is lost, nothing is stored twice."""

import asyncio
import random

from bench.chaos import inspect, kill_and_recover, storing
from bench.service import PARTS, Service

SEED = 20260115


async def test_nothing_acknowledged_is_lost_whatever_is_killed(service: Service):
    chance = random.Random(SEED)
    parts = [*chance.sample(PARTS, len(PARTS)), chance.choice(PARTS)]
    service.start()
    await service.ready()
    async with storing(service) as load:
        for part in parts:
            await kill_and_recover(service, part, load, after_stores=chance.randint(1, 40))
    assert 0 == await asyncio.to_thread(service.stop)
    outcome = await inspect(service, load)
    assert (0, 0, {}) == (outcome.lost, outcome.doubled, outcome.faults)
    assert len(load.stored) > len(parts)
