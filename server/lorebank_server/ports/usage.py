"""The port that counts reading as use, off the request path."""

from collections.abc import Iterable
from datetime import datetime
from typing import Protocol
from uuid import UUID


class UsageRecorder(Protocol):
    """Takes note of returned memories and writes the counts later, coalesced."""

    def note(self, space_id: int, memories: Iterable[UUID], *, time: datetime) -> None:
        """Count one use of each memory; returns at once."""
        ...
