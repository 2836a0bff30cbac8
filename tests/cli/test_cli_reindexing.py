"""``lorebank reindex`` on a server that serves."""

MODEL = "all-MiniLM-L6-v2-int8"


async def test_it_tells_what_was_done_and_by_which_model(lorebank):
    await lorebank("store", "The projector needs the blue cable.")
    outcome = await lorebank("reindex")
    assert (0, "", [["REINDEXED", "1", MODEL]]) == (outcome.code, outcome.err, outcome.rows)
    named = await lorebank("reindex", "--model", MODEL, "--json")
    assert {"done": 1, "total": 1, "phase": "finished"} == named.json


async def test_a_terminal_shows_how_far_it_is(lorebank, terminal):
    await lorebank("store", "The projector needs the blue cable.")
    shown = await terminal("reindex")
    for word in ("embedding", "indexing", "switching", "1/1", "REINDEXED"):
        assert word in shown


async def test_a_model_that_the_server_lacks_is_told_with_those_it_has(lorebank):
    outcome = await lorebank("reindex", "--model", "bert")
    assert 4 == outcome.code
    assert f"{MODEL} (384 dimensions)" in outcome.err
    assert "goes on where it stopped" not in outcome.err


async def test_direct_takes_its_model_from_the_settings(command):
    outcome = await command("reindex", "--direct", "--model", MODEL)
    assert 2 == outcome.code
    assert "LOREBANK_EMBEDDING_" in outcome.err
