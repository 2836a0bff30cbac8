"""``lorebank vote``."""

from typing import Final, Literal

from cyclopts import App

from lorebank._writes import Ballot
from lorebank.cli.examples import examples
from lorebank.cli.memories import text_of, worth
from lorebank.cli.output import print_json, print_rows
from lorebank.cli.session import Own
from lorebank.v1.vote_pb2 import VoteRequest

_SIGNALS: Final = {
    "up": VoteRequest.SIGNAL_UPVOTE,
    "down": VoteRequest.SIGNAL_DOWNVOTE,
    "cite": VoteRequest.SIGNAL_CITE,
    "retract": VoteRequest.SIGNAL_RETRACT,
}


def register(app: App) -> None:
    """Add the command."""
    app.command(
        vote,
        help_epilogue=examples(
            "lorebank vote a1B2c3D4 up",
            'lorebank vote a1B2c3D4 down --reason "the flag was renamed"',
            "lorebank vote a1B2c3D4 cite --run build-812",
        ),
    )


async def vote(
    id: str,
    signal: Literal["up", "down", "cite", "retract"],
    /,
    *,
    run: str = "",
    reason: str = "",
    session: Own,
) -> None:
    """Say what a memory was worth. What is worth more is found first.

    Args:
        id: Its id.
        signal: up: it helped; down: it was wrong; cite: a run used it; retract: withdraw what you said in that run.
        run: Run in which it was used; needed to cite.
        reason: Why.
        session: The global options.
    """
    async with session.client() as client:
        answer = await client.vote([Ballot(id=id, signal=_SIGNALS[signal], reason=reason)], run=run)
    if session.json:
        print_json(answer)
        return
    print_rows(
        ("id", "worth", "votes", "text"),
        ((m.id, worth(m), f"{m.quality.upvotes} up, {m.quality.downvotes} down", text_of(m)) for m in answer.memories),
    )
