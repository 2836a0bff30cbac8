"""What counts as the same, and what is searched."""

import hashlib
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from lorebank_server.domain.fingerprints import applicability_fingerprint, content_hash, digest, indexed_text
from lorebank_server.domain.memory import Applicability, Card, Draft, Evidence, Kind, Triage

MOMENT = datetime(2026, 3, 9, 12, tzinfo=UTC)


def test_a_digest_is_sha256_of_canonical_json():
    assert hashlib.sha256('{"a":[1,"ж"],"b":null}'.encode()).hexdigest() == digest({"b": None, "a": [1, "ж"]})


def test_a_content_hash_can_be_computed_by_anyone():
    nowhere = '{"environment":{},"module":"","package":"","repo":"","runtime":"","versions":[]}'
    plain = (
        f'{{"applicability":{nowhere},"content":"A fact.","how_to_apply":[],"kind":1,"summary":"","title":"",'
        '"when_to_use":[]}'
    )
    assert hashlib.sha256(plain.encode()).hexdigest() == content_hash(Draft("A fact.", kind=Kind.SEMANTIC))


@pytest.mark.parametrize(
    "change",
    [
        {"content": "A fact. "},
        {"title": "T"},
        {"kind": Kind.EPISODIC},
        {"card": Card(summary="s")},
        {"card": Card(when_to_use=("w",))},
        {"card": Card(how_to_apply=("h",))},
        {"applicability": Applicability(repo="r")},
        {"applicability": Applicability(environment={"os": "linux"})},
    ],
)
def test_what_a_memory_says_changes_its_hash(change):
    draft = Draft("A fact.", kind=Kind.SEMANTIC)
    assert content_hash(draft) != content_hash(replace(draft, **change))


@pytest.mark.parametrize(
    "change",
    [
        {"tags": ("t",)},
        {"keywords": ("k",)},
        {"subject": "s"},
        {"confidence": 0.5},
        {"category": "agent-memory/fact"},
        {"card": Card(gotchas=("g",), evidence=(Evidence("e"),))},
        {"applicability": Applicability()},
        {"attributes": {"a": 1.0}},
    ],
)
def test_labels_do_not_change_the_hash(change):
    draft = Draft("A fact.", kind=Kind.SEMANTIC)
    assert content_hash(draft) == content_hash(replace(draft, **change))


def test_the_order_of_versions_and_of_the_environment_does_not_matter():
    one = Applicability(versions=("1", "2"), environment={"a": "1", "b": "2"})
    two = Applicability(versions=("2", "1"), environment={"b": "2", "a": "1"})
    assert applicability_fingerprint(one) == applicability_fingerprint(two)
    assert applicability_fingerprint(one) != applicability_fingerprint(Applicability())


def test_the_indexed_text_begins_with_the_date_in_words_and_the_subject():
    assert "9 March 2026: A fact." == indexed_text(Draft("A fact."), MOMENT)
    dated = Draft("A fact.", subject="Maren", valid_from=datetime(2020, 12, 31, tzinfo=UTC))
    assert "31 December 2020 Maren: A fact." == indexed_text(dated, MOMENT)


def test_the_indexed_text_has_every_part_that_says_something_in_order():
    draft = Draft(
        "content",
        title="title",
        context="left out",
        keywords=("keyword",),
        tags=("tag",),
        card=Card(
            summary="summary",
            when_to_use=("when",),
            how_to_apply=("how",),
            gotchas=("gotcha",),
            evidence=(Evidence("left out too"),),
            anti_pattern="anti",
            triage=Triage(("symptom",), ("cause",), ("verify",), ("fix",), ("trap",)),
            signals=("signal",),
            invariants=("invariant",),
        ),
    )
    parts = ["title", "content", "summary", "anti", "when", "how", "gotcha", "signal", "invariant"]
    parts += ["symptom", "cause", "verify", "fix", "trap", "keyword", "tag"]
    assert "9 March 2026: " + "\n".join(parts) == indexed_text(draft, MOMENT)
