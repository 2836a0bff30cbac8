"""The limits of what an author may say, and the normal form of what is kept."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from lorebank_server.domain.errors import InvalidArgumentError
from lorebank_server.domain.memory import Card, Draft, Link, Scope

MIN_CONTENT_CHARS = 5
MAX_CONTENT_CHARS = 8192
MAX_TITLE_CHARS = 200
MAX_SUBJECT_CHARS = 200
MAX_NAME_CHARS = 200
MAX_CONTEXT_CHARS = 2000
MAX_REASON_CHARS = 1000
MAX_TAGS = 32
MAX_TAG_CHARS = 64
MAX_KEYWORDS = 32
MAX_LIST_ENTRIES = 32
MAX_VERSIONS = 16
MAX_ENTRY_CHARS = 2000
MAX_SUMMARY_CHARS = 2000
MAX_LINKS = 64
MAX_ATTRIBUTES_CHARS = 16_384
MAX_SAFE_INTEGER = 2**53 - 1
MAX_QUERY_CHARS = 8192

_SLUG = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}(/[a-z0-9][a-z0-9_.-]{0,63})?")
_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./:-]{0,127}")
_RELATION_TYPE = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_SPACE = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


def normalize(draft: Draft) -> Draft:
    """Check every limit and return the draft in normal form: tags folded, blanks trimmed, repetition removed.

    The content itself is never changed.

    Raises:
        InvalidArgumentError: Naming the first field at fault.
    """
    check_text("memory.content", draft.content, maximum=MAX_CONTENT_CHARS)
    if len(draft.content.strip()) < MIN_CONTENT_CHARS:
        raise InvalidArgumentError(
            f"memory.content has {len(draft.content.strip())} characters besides blanks; at least "
            f"{MIN_CONTENT_CHARS} are needed. Send one self-contained fact in a full sentence.",
            field="memory.content",
        )
    check_text("memory.title", draft.title, maximum=MAX_TITLE_CHARS)
    check_text("memory.subject", draft.subject, maximum=MAX_SUBJECT_CHARS)
    check_text("memory.context", draft.context, maximum=MAX_CONTEXT_CHARS)
    check_text("memory.key", draft.key, maximum=MAX_NAME_CHARS)
    if draft.key != draft.key.strip():
        raise InvalidArgumentError("memory.key begins or ends with a blank; remove it.", field="memory.key")
    check_slug("memory.category", draft.category)
    check_slug("memory.collection", draft.collection)
    check_project("memory.project", draft.project)
    check_share("memory.confidence", draft.confidence)
    check_share("memory.utility", draft.utility)
    _check_list("memory.keywords", draft.keywords, entries=MAX_KEYWORDS, chars=MAX_TAG_CHARS)
    if draft.card is not None:
        _check_card(draft.card)
    _check_applicability(draft)
    _check_provenance(draft)
    _check_attributes(draft.attributes)
    if draft.valid_from and draft.valid_until and draft.valid_until <= draft.valid_from:
        raise InvalidArgumentError(
            "memory.valid_until must be later than memory.valid_from.", field="memory.valid_until"
        )
    if draft.scope is Scope.PROJECT and not draft.project:
        raise InvalidArgumentError(
            "A memory of scope PROJECT names its project: set memory.project, or use another scope.",
            field="memory.project",
        )
    return replace(
        draft,
        title=draft.title.strip(),
        subject=draft.subject.strip(),
        tags=tags("memory.tags", draft.tags),
        keywords=tuple(dict.fromkeys(keyword.strip() for keyword in draft.keywords if keyword.strip())),
    )


def tags(field: str, values: Iterable[str]) -> tuple[str, ...]:
    """Tags in normal form (NFC, lower case, trimmed), each once, in the order given."""
    folded = tuple(dict.fromkeys(unicodedata.normalize("NFC", value).strip().lower() for value in values))
    if len(folded) > MAX_TAGS:
        raise InvalidArgumentError(f"{field} has {len(folded)} entries; at most {MAX_TAGS} are kept.", field=field)
    for tag in folded:
        if not tag:
            raise InvalidArgumentError(f"{field} has a blank entry; remove it.", field=field)
        check_text(field, tag, maximum=MAX_TAG_CHARS)
    return folded


def normalize_links(links: Iterable[Link]) -> tuple[Link, ...]:
    """Check links between memories; the last of two links of one type to one target wins."""
    kept: dict[tuple[str, str], Link] = {}
    for position, link in enumerate(links):
        field = f"links[{position}]"
        if _RELATION_TYPE.fullmatch(link.type) is None:
            raise InvalidArgumentError(
                f"{field}.type must be lower-case words joined by '_', such as 'related_to'.", field=f"{field}.type"
            )
        if link.type == "supersedes":
            raise InvalidArgumentError(
                f"{field}.type 'supersedes' is made by the Supersede procedure alone; call that instead.",
                field=f"{field}.type",
            )
        if not link.target:
            raise InvalidArgumentError(f"{field}.target must be the id of a memory.", field=f"{field}.target")
        check_share(f"{field}.strength", link.strength)
        check_text(f"{field}.context", link.context, maximum=MAX_CONTEXT_CHARS)
        kept[link.type, link.target] = link
    if len(kept) > MAX_LINKS:
        raise InvalidArgumentError(f"links has {len(kept)} entries; at most {MAX_LINKS} are kept.", field="links")
    return tuple(kept.values())


def check_text(field: str, value: str, *, maximum: int) -> None:
    """Refuse NUL characters and more than ``maximum`` code points."""
    if "\x00" in value:
        raise InvalidArgumentError(
            f"{field} contains a NUL character, which no store can keep; remove it.", field=field
        )
    if len(value) > maximum:
        raise InvalidArgumentError(
            f"{field} has {len(value)} characters; at most {maximum} are kept. Split it, or shorten it.",
            field=field,
        )


def check_slug(field: str, value: str) -> None:
    """Refuse what is neither empty nor a slug, bare or ``pack/slug``."""
    if value and _SLUG.fullmatch(value) is None:
        raise InvalidArgumentError(
            f"{field} must be lower-case letters, digits, '-', '_' or '.', at most 64, optionally as 'pack/slug'.",
            field=field,
        )


def check_project(field: str, value: str) -> None:
    """Refuse what is neither empty nor a project slug."""
    if value and _PROJECT.fullmatch(value) is None:
        raise InvalidArgumentError(
            f"{field} must be letters, digits and any of '_ . / : -', at most 128, beginning with a letter or digit.",
            field=field,
        )


def check_space_id(field: str, value: str) -> None:
    """Refuse what is no slug of a space."""
    if _SPACE.fullmatch(value) is None:
        raise InvalidArgumentError(
            f"{field} must be 1 to 64 lower-case letters, digits or '-', beginning with a letter or digit.",
            field=field,
        )


def check_share(field: str, value: float | None) -> None:
    """Refuse what is not between 0 and 1; NaN is not."""
    if value is not None and not 0.0 <= value <= 1.0:
        raise InvalidArgumentError(f"{field} must be a number from 0 to 1.", field=field)


def _check_list(
    field: str, values: Iterable[str], *, entries: int = MAX_LIST_ENTRIES, chars: int = MAX_ENTRY_CHARS
) -> None:
    values = tuple(values)
    if len(values) > entries:
        raise InvalidArgumentError(f"{field} has {len(values)} entries; at most {entries} are kept.", field=field)
    for position, value in enumerate(values):
        check_text(f"{field}[{position}]", value, maximum=chars)


def _check_card(card: Card) -> None:
    check_text("memory.card.summary", card.summary, maximum=MAX_SUMMARY_CHARS)
    check_text("memory.card.anti_pattern", card.anti_pattern, maximum=MAX_SUMMARY_CHARS)
    for name in ("when_to_use", "how_to_apply", "gotchas", "signals", "invariants"):
        _check_list(f"memory.card.{name}", getattr(card, name))
    if card.triage is not None:
        for name in ("symptoms", "likely_causes", "verification_steps", "fix_steps", "gotchas"):
            _check_list(f"memory.card.triage.{name}", getattr(card.triage, name))
    for name in ("text", "uri", "digest"):
        _check_list(f"memory.card.evidence.{name}", [getattr(entry, name) for entry in card.evidence])


def _check_applicability(draft: Draft) -> None:
    where = draft.applicability
    if where is None:
        return
    for name in ("repo", "package", "module", "runtime"):
        check_text(f"memory.applicability.{name}", getattr(where, name), maximum=MAX_NAME_CHARS)
    _check_list("memory.applicability.versions", where.versions, entries=MAX_VERSIONS, chars=MAX_NAME_CHARS)
    _check_list("memory.applicability.environment", [*where.environment], chars=MAX_NAME_CHARS)
    _check_list("memory.applicability.environment", [*where.environment.values()], chars=MAX_NAME_CHARS)


def _check_provenance(draft: Draft) -> None:
    provenance = draft.provenance
    for name in ("agent", "run", "conversation"):
        check_text(f"memory.provenance.{name}", getattr(provenance, name), maximum=MAX_NAME_CHARS)
    _check_list("memory.provenance.sources", provenance.sources)


def _check_attributes(attributes: Mapping[str, Any]) -> None:
    if (size := _attribute_chars(attributes, depth=0)) > MAX_ATTRIBUTES_CHARS:
        raise InvalidArgumentError(
            f"memory.attributes holds {size} characters; at most {MAX_ATTRIBUTES_CHARS} are kept.",
            field="memory.attributes",
        )


def _attribute_chars(value: Any, *, depth: int) -> int:
    field = "memory.attributes"
    if depth > 8:
        raise InvalidArgumentError(f"{field} is nested more than 8 deep; flatten it.", field=field)
    if isinstance(value, Mapping):
        return sum(
            _attribute_chars(key, depth=depth) + _attribute_chars(entry, depth=depth + 1)
            for key, entry in value.items()
        )
    if isinstance(value, list | tuple):
        return sum(_attribute_chars(entry, depth=depth + 1) for entry in value) + len(value)
    if isinstance(value, str):
        check_text(field, value, maximum=MAX_ATTRIBUTES_CHARS)
        return len(value)
    if isinstance(value, float) and not abs(value) <= MAX_SAFE_INTEGER:
        raise InvalidArgumentError(
            f"{field} has a number outside the exact range of -(2^53 - 1) to 2^53 - 1, which JSON would change; "
            "send it as a string.",
            field=field,
        )
    return 8
