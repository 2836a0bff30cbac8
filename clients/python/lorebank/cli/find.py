"""``lorebank find``."""

from typing import Annotated

from cyclopts import App, Parameter

from lorebank._enums import ModeName
from lorebank._reads import DEFAULT_HITS
from lorebank.cli.examples import examples
from lorebank.cli.failures import UsageError
from lorebank.cli.memories import age, text_of, worth
from lorebank.cli.output import note, print_json, print_rows
from lorebank.cli.selection import Narrow, chosen
from lorebank.cli.session import Own
from lorebank.cli.text import optional_text
from lorebank.v1.find_pb2 import FindResponse


def register(app: App) -> None:
    """Add the command."""
    app.command(
        find,
        help_epilogue=examples(
            'lorebank find "when is staging wiped?"',
            'lorebank find "how do we deploy" --project shop --limit 3 --explain',
            "lorebank find --similar-to a1B2c3D4 --min-similarity 0.6",
            "lorebank find \"naming rules\" --json | jq -r '.hits[].memory.content'",
        ),
    )


async def find(
    query: str | None = None,
    /,
    *,
    similar_to: str | None = None,
    limit: Annotated[int, Parameter(name=("--limit", "-n"))] = DEFAULT_HITS,
    mode: ModeName = "hybrid",
    min_similarity: float | None = None,
    explain: bool = False,
    skip_usage: bool = False,
    narrow: Narrow = None,
    session: Own,
) -> None:
    """Recall the memories that help most with something, best first.

    Worth is what a memory has proven to be: votes, outcomes and age together.

    Args:
        query: The question or situation in plain words; - reads standard input.
        similar_to: Id of a memory whose likes are wanted, instead of a question.
        limit: Most memories to show, 1 to 100.
        mode: Rank by meaning and words (hybrid), by meaning (semantic) or by words (lexical).
        min_similarity: Least cosine similarity, 0 to 1.
        explain: Show every part of each score.
        skip_usage: Look without counting use.
        narrow: Which memories to consider.
        session: The global options.
    """
    text = optional_text(query, None, what="question")
    if bool(text) == bool(similar_to):
        raise UsageError("Say what to find: a question, or --similar-to ID.")
    async with session.client() as client:
        answer = await client.find(
            text or "",
            similar_to=similar_to or "",
            limit=limit,
            mode=mode,
            min_similarity=min_similarity,
            skip_usage=skip_usage,
            selector=chosen(narrow),
        )
    if session.json:
        print_json(answer)
        return
    _print(answer, explain=explain)


def _print(answer: FindResponse, *, explain: bool) -> None:
    for what in answer.degraded:
        note(f"degraded: {what}")
    if not answer.hits:
        withheld = answer.below_threshold
        note(f"Nothing is similar enough; {withheld} withheld." if withheld else "Nothing found.")
        return
    print_rows(
        ("#", "id", "score", "age", "worth", "category", "text"),
        (
            (
                str(rank),
                hit.memory.id,
                f"{hit.score:.3f}",
                age(hit.memory.create_time),
                worth(hit.memory),
                hit.memory.category or "-",
                f"{text_of(hit.memory)}\n{_explanation(hit)}" if explain else text_of(hit.memory),
            )
            for rank, hit in enumerate(answer.hits, start=1)
        ),
    )


def _explanation(hit: FindResponse.Hit) -> str:
    parts = hit.parts
    signals = f"similarity {parts.similarity:.3f} of {parts.max_similarity:.3f}"
    signals += f", words {parts.lexical:.3f} of {parts.max_lexical:.3f}"
    if parts.max_previous:
        signals += f", previous {parts.previous:.3f} of {parts.max_previous:.3f}"
    if parts.neighbor:
        signals += f", neighbor {parts.neighbor:.3f}"
    matched = f"; matched {' '.join(hit.matched)}" if hit.matched else ""
    worth_of = f"(0.25 + 1.5 x strength {parts.strength:.3f})" if hit.memory.quality.policy != "none" else "1"
    return (
        f"= fused {parts.fused:.3f} x {worth_of} x applicability {parts.applicability:.2f}; fused from {signals}; "
        f"strength from reputation {parts.reputation:.3f}, retention {parts.retention:.3f} at {parts.age_days:.1f} days"
        f"{matched}"
    )
