"""How far the vector index is behind: told by whoever drains the outbox, read whenever metrics are collected."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(slots=True)
class Backlog:
    """The outbox as it was last seen; nothing is reported until somebody looked.

    One event loop writes it and other threads read it, each field on its own.

    Attributes:
        rows: Changes that the vector index has not taken in; None as long as nobody counted them, and for good
            where there is no outbox.
        oldest_enqueue_time: When the oldest of them was committed, in UTC; None when there is none. Its age is the
            lag, so a drainer that is stuck shows as a lag that grows.
    """

    rows: int | None = None
    oldest_enqueue_time: datetime | None = None

    def tell(self, *, rows: int, oldest_enqueue_time: datetime | None) -> None:
        """Replace what was known."""
        self.oldest_enqueue_time = oldest_enqueue_time
        self.rows = rows

    def lag_s(self, now: datetime) -> float | None:
        """Age of the oldest change in seconds at ``now``; 0 for an empty outbox, None when nobody has looked."""
        if self.rows is None:
            return None
        if self.rows == 0 or self.oldest_enqueue_time is None:
            return 0.0
        return max(0.0, (now - self.oldest_enqueue_time).total_seconds())
