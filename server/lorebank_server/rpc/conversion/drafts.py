"""What an author says of a memory, both ways. Output-only fields are neither read nor written here."""

from lorebank.v1 import card_pb2, memory_pb2, provenance_pb2
from lorebank_server.domain.fingerprints import applicability_fingerprint
from lorebank_server.domain.memory import (
    Applicability,
    Author,
    Card,
    Draft,
    Evidence,
    Kind,
    Origin,
    Outcome,
    Polarity,
    Provenance,
    Scope,
    Triage,
)
from lorebank_server.rpc.conversion.values import is_empty, set_mapping, set_time, time_or_none, to_mapping

_TRIAGE_LISTS = ("symptoms", "likely_causes", "verification_steps", "fix_steps", "gotchas")
_CARD_LISTS = ("when_to_use", "how_to_apply", "gotchas", "signals", "invariants")


def to_draft(message: memory_pb2.Memory) -> Draft:
    """The author's part of a memory. A card, triage or applicability that says nothing counts as absent."""
    return Draft(
        content=message.content,
        title=message.title,
        card=_to_card(message.card) if message.HasField("card") and not is_empty(message.card) else None,
        context=message.context,
        keywords=tuple(message.keywords),
        kind=Kind(message.kind),
        polarity=Polarity(message.polarity),
        category=message.category,
        collection=message.collection,
        subject=message.subject,
        tags=tuple(message.tags),
        attributes=to_mapping(message.attributes),
        scope=Scope(message.scope),
        project=message.project,
        key=message.key,
        applicability=_to_applicability(message),
        provenance=_to_provenance(message.provenance),
        confidence=message.confidence if message.HasField("confidence") else None,
        utility=message.utility if message.HasField("utility") else None,
        pinned=message.pinned,
        valid_from=time_or_none(message, "valid_from"),
        valid_until=time_or_none(message, "valid_until"),
    )


def write_draft(draft: Draft, target: memory_pb2.Memory) -> None:
    """Write every field of a draft into a fresh message."""
    write_heading(draft, target)
    target.context = draft.context
    target.keywords.extend(draft.keywords)
    set_mapping(target.attributes, draft.attributes)
    if draft.card is not None:
        _write_card(draft.card, target.card)
    if draft.applicability is not None:
        _write_applicability(draft.applicability, target.applicability)
    if draft.provenance != Provenance():
        _write_provenance(draft.provenance, target.provenance)


def write_heading(draft: Draft, target: memory_pb2.Memory) -> None:
    """Write what VIEW_SUMMARY keeps of a draft into a fresh message."""
    target.key = draft.key
    target.content = draft.content
    target.title = draft.title
    target.kind = int(draft.kind)  # type: ignore[assignment]
    target.polarity = int(draft.polarity)  # type: ignore[assignment]
    target.category = draft.category
    target.collection = draft.collection
    target.subject = draft.subject
    target.tags.extend(draft.tags)
    target.scope = int(draft.scope)  # type: ignore[assignment]
    target.project = draft.project
    if draft.confidence is not None:
        target.confidence = draft.confidence
    if draft.utility is not None:
        target.utility = draft.utility
    target.pinned = draft.pinned
    set_time(target.valid_from, draft.valid_from)
    set_time(target.valid_until, draft.valid_until)


def _to_card(message: card_pb2.Card) -> Card:
    triage = message.triage
    return Card(
        summary=message.summary,
        when_to_use=tuple(message.when_to_use),
        how_to_apply=tuple(message.how_to_apply),
        gotchas=tuple(message.gotchas),
        evidence=tuple(
            Evidence(entry.text, entry.uri, entry.digest, time_or_none(entry, "observe_time"))
            for entry in message.evidence
        ),
        outcome=Outcome(message.outcome),
        anti_pattern=message.anti_pattern,
        triage=None if is_empty(triage) else Triage(*(tuple(getattr(triage, name)) for name in _TRIAGE_LISTS)),
        signals=tuple(message.signals),
        invariants=tuple(message.invariants),
    )


def _write_card(card: Card, target: card_pb2.Card) -> None:
    target.summary = card.summary
    target.anti_pattern = card.anti_pattern
    target.outcome = int(card.outcome)  # type: ignore[assignment]
    for name in _CARD_LISTS:
        getattr(target, name).extend(getattr(card, name))
    for entry in card.evidence:
        evidence = target.evidence.add(text=entry.text, uri=entry.uri, digest=entry.digest)
        set_time(evidence.observe_time, entry.observe_time)
    if card.triage is not None:
        for name in _TRIAGE_LISTS:
            getattr(target.triage, name).extend(getattr(card.triage, name))


def _to_applicability(message: memory_pb2.Memory) -> Applicability | None:
    where = message.applicability
    if is_empty(where, besides=("fingerprint",)):
        return None
    return Applicability(
        repo=where.repo,
        package=where.package,
        module=where.module,
        runtime=where.runtime,
        versions=tuple(where.versions),
        environment=dict(where.environment),
    )


def _write_applicability(where: Applicability, target: provenance_pb2.Applicability) -> None:
    target.repo = where.repo
    target.package = where.package
    target.module = where.module
    target.runtime = where.runtime
    target.versions.extend(where.versions)
    target.environment.update(where.environment)
    target.fingerprint = applicability_fingerprint(where)


def _to_provenance(message: provenance_pb2.Provenance) -> Provenance:
    return Provenance(
        origin=Origin(message.origin),
        author=Author(message.author),
        agent=message.agent,
        run=message.run,
        conversation=message.conversation,
        sources=tuple(message.sources),
    )


def _write_provenance(provenance: Provenance, target: provenance_pb2.Provenance) -> None:
    target.origin = int(provenance.origin)  # type: ignore[assignment]
    target.author = int(provenance.author)  # type: ignore[assignment]
    target.agent = provenance.agent
    target.run = provenance.run
    target.conversation = provenance.conversation
    target.sources.extend(provenance.sources)
