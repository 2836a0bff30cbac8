"""What is compared and what is indexed: hashes of a draft, and the text that both search legs see."""

import hashlib
import json
from datetime import datetime
from typing import Any

from lorebank_server.domain.memory import Applicability, Draft

_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)


def digest(value: Any) -> str:
    """Lower-case hexadecimal SHA-256 of a JSON value in canonical form (sorted keys, no spaces, UTF-8)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def applicability_fingerprint(applicability: Applicability) -> str:
    """Digest of where a memory holds; the order of versions does not matter."""
    return digest(_applicability(applicability))


def content_hash(draft: Draft) -> str:
    """Digest of kind, title, summary, when_to_use, how_to_apply, applicability and content."""
    card = draft.card
    return digest(
        {
            "kind": int(draft.kind),
            "title": draft.title,
            "summary": card.summary if card else "",
            "when_to_use": list(card.when_to_use) if card else [],
            "how_to_apply": list(card.how_to_apply) if card else [],
            "applicability": _applicability(draft.applicability or Applicability()),
            "content": draft.content,
        }
    )


def indexed_text(draft: Draft, create_time: datetime) -> str:
    """The text that is embedded and searched by words.

    Date in words, subject, title, content, card, keywords and tags: who speaks and when is what short memories
    are asked for.
    """
    moment = draft.valid_from or create_time
    date = f"{moment.day} {_MONTHS[moment.month - 1]} {moment.year}"
    head = f"{date} {draft.subject}".strip()
    parts = [part for part in (draft.title, draft.content) if part]
    if draft.card is not None:
        card = draft.card
        parts += [part for part in (card.summary, card.anti_pattern) if part]
        parts += [*card.when_to_use, *card.how_to_apply, *card.gotchas, *card.signals, *card.invariants]
        if card.triage is not None:
            triage = card.triage
            parts += [*triage.symptoms, *triage.likely_causes, *triage.verification_steps]
            parts += [*triage.fix_steps, *triage.gotchas]
    parts += [*draft.keywords, *draft.tags]
    return f"{head}: " + "\n".join(parts)


def _applicability(applicability: Applicability) -> dict[str, Any]:
    return {
        "repo": applicability.repo,
        "package": applicability.package,
        "module": applicability.module,
        "runtime": applicability.runtime,
        "versions": sorted(applicability.versions),
        "environment": dict(applicability.environment),
    }
