import pytest
from rich.text import Text

ARGO = "The shop is deployed with Argo."


@pytest.fixture
async def argo(lorebank):
    """Id of a memory that is there."""
    return (await lorebank("store", ARGO)).rows[0][1]


async def test_store_prints_what_it_did_and_the_id(lorebank):
    first = await lorebank("store", ARGO)
    second = await lorebank("store", ARGO)
    (_, id_, _), *_ = first.rows
    assert ([["CREATED", id_, ARGO]], [["UNCHANGED", id_, ARGO]]) == (first.rows, second.rows)


async def test_store_reads_a_pipe_a_hyphen_or_a_file(lorebank, tmp_path):
    file = tmp_path / "fact.txt"
    file.write_text("From a file.\n")
    piped = await lorebank("store", stdin="From a pipe.\n")
    hyphen = await lorebank("store", "-", stdin="From a hyphen.\r\n")
    read = await lorebank("store", "--file", str(file))
    assert ["From a pipe.", "From a hyphen.", "From a file."] == [
        outcome.rows[0][2] for outcome in (piped, hyphen, read)
    ]


async def test_store_refuses_what_is_no_text(lorebank):
    outcome = await lorebank("store", stdin=b"\xff\xfe")
    assert (2, True) == (outcome.code, "UTF-8" in outcome.err)


async def test_a_text_may_look_like_an_option(lorebank):
    outcome = await lorebank("store", "--", "--json prints a document.")
    assert "--json prints a document." == outcome.rows[0][2]


async def test_store_says_all_that_options_can(lorebank):
    outcome = await lorebank(
        *("store", "Argo rolls back.", "--title", "Rollback", "--category", "fact", "--subject", "shop"),
        *("--tag", "deploy", "--tag", "argo", "--kind", "procedural", "--scope", "team", "--project", "shop"),
        *("--key", "shop/rollback", "--confidence", "0.5", "--valid-from", "2026-03-01", "--agent", "desk", "--json"),
    )
    memory = outcome.json["memory"]
    expected = {
        "title": "Rollback",
        "subject": "shop",
        "tags": ["deploy", "argo"],
        "kind": "KIND_PROCEDURAL",
        "scope": "SCOPE_TEAM",
        "project": "shop",
        "key": "shop/rollback",
        "confidence": 0.5,
    }
    assert expected == {name: memory[name] for name in expected}
    assert ("RESULT_CREATED", "desk") == (outcome.json["result"], memory["provenance"]["agent"])


async def test_a_rehearsal_says_what_would_be(lorebank):
    outcome = await lorebank("store", ARGO, "--dry-run")
    assert ("would be CREATED", []) == (outcome.rows[0][0], (await lorebank("list")).rows)


async def test_a_value_that_is_refused_is_4_and_named(lorebank):
    outcome = await lorebank("store", "no")
    assert (4, True) == (outcome.code, "content" in outcome.err)


async def test_find_prints_rank_id_score_and_text(lorebank, argo):
    outcome = await lorebank("find", "how is the shop deployed")
    rank, id_, score, _age, _worth, category, text = outcome.rows[0]
    assert ("1", argo, "-", ARGO) == (rank, id_, category, text)
    assert 0 < float(score) <= 1.75


@pytest.mark.usefixtures("argo")
async def test_find_explains_every_part(lorebank):
    outcome = await lorebank("find", "how is the shop deployed", "--explain")
    assert [] == [
        part for part in ("fused", "similarity", "words", "reputation", "retention") if part not in outcome.out
    ]


async def test_find_that_finds_nothing_says_so_and_is_0(lorebank):
    outcome = await lorebank("find", "anything at all")
    assert (0, "", "Nothing found.\n") == (outcome.code, outcome.out, outcome.err)


@pytest.mark.usefixtures("argo")
async def test_find_narrows(lorebank):
    outcome = await lorebank("find", "how is the shop deployed", "--tag", "none", "--json")
    assert [] == outcome.json["hits"]


async def test_get_reads_one_or_several(lorebank, argo):
    one = await lorebank("get", argo)
    two = await lorebank("get", argo, "zzzzzzzz", "--json")
    assert ["content", ARGO] in one.rows
    assert (3, [argo]) == (two.code, [memory["id"] for memory in two.json])


async def test_what_is_not_there_is_3(lorebank):
    outcome = await lorebank("get", "--key", "none")
    assert (3, "") == (outcome.code, outcome.out)


async def test_list_says_when_there_is_more(lorebank):
    for number in range(3):
        await lorebank("store", f"Fact number {number}.")
    some = await lorebank("list", "--limit", "2")
    every = await lorebank("list", "--limit", "0", "--order-by", "create_time asc", "--json")
    assert (2, True) == (len(some.rows), "There are more" in some.err)
    assert [f"Fact number {number}." for number in range(3)] == [memory["content"] for memory in every.json]


async def test_update_corrects_clears_and_leaves_a_history(lorebank):
    id_ = (await lorebank("store", ARGO, "--title", "Deploy", "--tag", "argo")).rows[0][1]
    updated = await lorebank("update", id_, "--tag", "flux", "--clear", "title", "--reason", "Argo is gone")
    again = await lorebank("update", id_, "--tag", "flux")
    history = await lorebank("history", id_)
    assert [["UPDATED", id_, ARGO], ["UNCHANGED", id_, ARGO]] == [*updated.rows, *again.rows]
    assert [["2", "update"], ["1", "create"]] == [row[:2] for row in history.rows]
    assert "Reason: Argo is gone" in history.out


async def test_a_stale_etag_is_4(lorebank, argo):
    await lorebank("update", argo, "--title", "Deploy")
    outcome = await lorebank("update", argo, "--title", "Ship", "--etag", "stale")
    assert 4 == outcome.code


async def test_what_was_deleted_comes_back(lorebank, argo):
    deleted = await lorebank("delete", argo)
    gone = await lorebank("list", "--state", "deleted")
    restored = await lorebank("undelete", argo)
    assert [["DELETED", argo, ARGO], ["ACTIVE", argo, ARGO]] == [*deleted.rows, *restored.rows]
    assert [argo, "deleted"] == gone.rows[0][:2]


async def test_supersede_replaces_and_points_onwards(lorebank, argo):
    done = await lorebank("supersede", argo, "--by", "The shop is deployed with Flux.")
    again = await lorebank("supersede", argo, "--by", "The shop is deployed by hand.")
    new = done.rows[0][1]
    assert [["CREATED", new], ["SUPERSEDED", argo]] == [row[:2] for row in done.rows]
    assert (4, True) == (again.code, f"lorebank get {new}" in again.err)


async def test_votes_are_counted(lorebank, argo):
    up = await lorebank("vote", argo, "up", "--reason", "it helped")
    down = await lorebank("vote", argo, "down", "--run", "build-1")
    assert ["1 up, 0 down", "1 up, 1 down"] == [up.rows[0][2], down.rows[0][2]]


async def test_graph_shows_memories_and_relations(lorebank, argo):
    stored = await lorebank("store", "Argo rolls back on its own.", "--link", f"explains:{argo}")
    outcome = await lorebank("graph", argo)
    other = stored.rows[0][1]
    assert [other, "explains", argo, "1.00"] in [row[:4] for row in outcome.rows]


async def test_a_terminal_gets_a_table_that_fits(terminal, lorebank):
    await lorebank("store", "The shop is deployed with Argo, which takes about four minutes on a good day.")
    shown = await terminal("find", "how is the shop deployed")
    lines = Text.from_ansi(shown.replace("\r\n", "\n")).plain.splitlines()
    assert (True, True) == ("score" in lines[0], len(lines) > 2)
    assert [] == [line for line in lines if len(line) > 60]


async def test_a_memory_cannot_drive_the_terminal(terminal, lorebank):
    await lorebank("store", "A fact \x1b]0;title\x07 with [bold]escapes[/bold].")
    shown = await terminal("list")
    assert ("\x1b]0;" in shown, "[bold]escapes" in shown.replace("\r\n", "")) == (False, True)
