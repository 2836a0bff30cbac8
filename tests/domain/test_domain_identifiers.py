"""Ids, keys, principals, packs, places and errors."""

import re
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorebank_server.domain.errors import FailedPreconditionError, InvalidArgumentError, PermissionDeniedError
from lorebank_server.domain.ids import hash_secret, is_short_id, key_id_of, new_key_secret, new_short_id
from lorebank_server.domain.memory import Draft, Kind, Memory, Scope, State, Usage
from lorebank_server.domain.packs import Category, Pack, Vocabulary
from lorebank_server.domain.principal import Principal, Role
from lorebank_server.domain.quality import Standing, assess
from lorebank_server.domain.space import Space
from lorebank_server.domain.visibility import key_namespace, place

NOW = datetime(2026, 1, 15, 12, tzinfo=UTC)


def principal(role=Role.WRITER, space="default", project=""):
    return Principal(space_id=1, space=space, owner="maren", role=role, project=project)


def test_short_ids_are_eight_letters_or_digits_and_do_not_repeat():
    ids = {new_short_id() for _ in range(1000)}
    assert 1000 == len(ids)
    assert all(re.fullmatch(r"[A-Za-z0-9]{8}", each) and is_short_id(each) for each in ids)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "abcdefg",
        "abcdefghi",
        "abcd-123",
        "abcdefgé",
        "abcd 123",
        "\uff11" * 8,
    ],
)
def test_anything_else_is_no_short_id(value):
    assert not is_short_id(value)


def test_a_key_carries_its_id_and_a_secret_of_43_letters():
    secret = new_key_secret("a1B2c3D4")
    assert re.fullmatch(r"lb_a1B2c3D4_[A-Za-z0-9]{43}", secret)
    assert "a1B2c3D4" == key_id_of(secret)
    assert 32 == len(hash_secret(secret))
    assert hash_secret(secret) != hash_secret(secret + " ")


@given(st.text(max_size=80))
def test_any_other_text_is_no_key_and_breaks_nothing(text):
    assert key_id_of(text) is None or re.fullmatch(r"lb_[A-Za-z0-9]{8}_.{43}", text, re.DOTALL)


@pytest.mark.parametrize(
    "text", ["lb_short_" + "x" * 43, "lb_a1B2c3D4_short", "xx_a1B2c3D4_" + "x" * 43, "lb__", "lb_a_b_c"]
)
def test_a_key_that_is_cut_or_of_others_is_no_key(text):
    assert key_id_of(text) is None


@pytest.mark.parametrize(
    ("who", "admin", "operator"),
    [
        (principal(Role.READER), False, False),
        (principal(Role.REVIEWER), False, False),
        (principal(Role.ADMIN), True, True),
        (principal(Role.ADMIN, space="shop"), True, False),
        (principal(Role.ADMIN, project="shop"), True, False),
    ],
)
def test_operators_are_unbound_admins_of_the_first_space(who, admin, operator):
    assert (admin, operator) == (who.is_admin, who.is_operator)


@pytest.mark.parametrize(
    ("draft", "who", "scope", "project"),
    [
        (Draft("x"), principal(), Scope.USER, ""),
        (Draft("x", project="shop"), principal(), Scope.USER, "shop"),
        (Draft("x", scope=Scope.TEAM), principal(), Scope.TEAM, ""),
        (Draft("x", scope=Scope.TEAM), principal(project="shop"), Scope.TEAM, "shop"),
        (Draft("x", scope=Scope.PROJECT), principal(project="shop"), Scope.PROJECT, "shop"),
        (Draft("x"), principal(project="shop"), Scope.USER, ""),
        (Draft("x", project="shop"), principal(project="shop"), Scope.USER, "shop"),
        (Draft("x", scope=Scope.GLOBAL), principal(Role.ADMIN), Scope.GLOBAL, ""),
    ],
)
def test_a_draft_gets_its_place_from_what_it_says_and_who_says_it(draft, who, scope, project):
    placed = place(draft, who)
    assert (scope, project) == (placed.scope, placed.project)


@pytest.mark.parametrize(
    ("draft", "who", "reason"),
    [
        (Draft("x", project="blog"), principal(project="shop"), "PROJECT_NOT_ALLOWED"),
        (Draft("x", scope=Scope.GLOBAL), principal(Role.REVIEWER), "ADMIN_REQUIRED"),
    ],
)
def test_a_place_that_is_not_the_callers_is_refused(draft, who, reason):
    with pytest.raises(PermissionDeniedError) as caught:
        place(draft, who)
    assert reason == caught.value.reason


@pytest.mark.parametrize(
    ("scope", "namespace"),
    [
        (Scope.USER, "owner:maren"),
        (Scope.PROJECT, "owner:maren"),
        (Scope.TEAM, "team:shop"),
        (Scope.GLOBAL, "global"),
    ],
)
def test_a_key_is_unique_where_its_readers_are(scope, namespace):
    assert namespace == key_namespace(scope, "maren", "shop")


def vocabulary():
    first = Pack("one", "1", "", (Category("one/tea", "", Kind.SEMANTIC), Category("one/how", "", Kind.PROCEDURAL)))
    second = Pack("two", "1", "", (Category("two/tea", "", Kind.EPISODIC), Category("two/rum", "", Kind.SEMANTIC)))
    return Vocabulary([first, second])


@pytest.mark.parametrize(
    ("slug", "full"), [("tea", "one/tea"), ("two/tea", "two/tea"), ("rum", "two/rum"), ("one/how", "one/how")]
)
def test_a_bare_slug_means_the_first_pack_that_has_it(slug, full):
    assert full == vocabulary().category(slug, field="f").slug


@pytest.mark.parametrize(
    ("slug", "nearest"), [("te", "tea"), ("two/te", "two/tea"), ("q", "one/how,one/tea,two/rum,two/tea")]
)
def test_an_unknown_slug_is_refused_with_what_is_nearest(slug, nearest):
    with pytest.raises(InvalidArgumentError) as caught:
        vocabulary().category(slug, field="memory.category")
    assert ("UNKNOWN_CATEGORY", "memory.category") == (caught.value.reason, caught.value.field)
    assert nearest in caught.value.metadata["nearest"]


def test_errors_carry_what_the_caller_needs_and_cannot_be_changed():
    error = InvalidArgumentError("Do this.", field="f", metadata={"a": "b"})
    assert ("Do this.", "INVALID_FIELD", {"field": "f", "a": "b"}) == (
        error.message,
        error.reason,
        dict(error.metadata),
    )
    with pytest.raises(TypeError):
        error.metadata["a"] = "c"
    assert {} == dict(InvalidArgumentError("Do that.").metadata)
    unmet = FailedPreconditionError("Wait.", reason="R", subject="s")
    assert ("s", "R", {}) == (unmet.subject, unmet.reason, dict(unmet.metadata))


def test_an_etag_changes_with_the_revision_and_nothing_else():
    quality = assess(Standing("bayes-v2", 0.7, None, NOW), now=NOW, stale_threshold=0.25)
    uid = UUID("0190a5c4-7d10-7b3e-9d43-6f1f0c2b8a11")

    def memory(revision, owner):
        return Memory("i", uid, Draft("x"), owner, State.ACTIVE, revision, quality, Usage(), "", NOW, NOW)

    assert "6f1f0c2b8a11-3" == memory(3, "a").etag == memory(3, "b").etag
    assert memory(4, "a").etag != memory(3, "a").etag
    space = Space(7, "s", "", 2, None, 0.8, 0.25, "none", "english")
    assert "7-2" == space.etag


def test_private_scopes_are_those_of_the_owner_alone():
    assert [Scope.USER, Scope.PROJECT] == [scope for scope in Scope if scope.private]
