import json

import pytest

COMMANDS = [
    *("config", "delete", "demo", "find", "get", "graph", "history", "import", "keys", "list", "migrate"),
    *("reindex", "serve", "spaces", "store", "supersede", "undelete", "update", "vote"),
]


async def test_help_lists_commands_and_exit_codes(command):
    outcome = await command("--help")
    assert [] == [name for name in COMMANDS if f" {name} " not in outcome.out]
    assert "Exit codes:" in outcome.out


async def test_no_command_shows_the_help(command):
    assert (await command("--help")).out == (await command()).out


@pytest.mark.parametrize("name", [*COMMANDS, "spaces create", "spaces delete", "keys create"])
async def test_every_command_explains_itself(command, name):
    outcome = await command(*name.split(), "--help")
    assert (0, True) == (outcome.code, f"Usage: lorebank {name}" in outcome.out)
    if name not in {"spaces", "keys"}:
        assert "Examples:\n  " in outcome.out


async def test_the_version_is_told(command):
    outcome = await command("--version")
    assert (0, "lorebank ") == (outcome.code, outcome.out[:9])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fnd", "x"], 'Did you mean "find"?'),
        (["find", "x", "--bogus"], "Unknown option: --bogus"),
        (["find", "x", "y"], "Unused Tokens"),
        (["find", "x", "--limit", "many"], "Invalid value for --limit"),
        (["find", "x", "--limit", "99999999999"], "out of range"),
        (["find"], "Say what to find"),
        (["get"], "Say which memory"),
        (["vote", "a1B2c3D4", "sideways"], "sideways"),
        (["update", "a1B2c3D4"], "Say what to change"),
        (["store", "A fact.", "--link", "nonsense"], "type:id"),
        (["store", "A fact.", "--file", "fact.txt"], "not both"),
        (["store", "--file", "no-such-file"], "no-such-file cannot be read"),
        (["import", "no-such-file"], "no-such-file cannot be read"),
        (["list", "--timeout", "0"], "--timeout"),
        (["list", "--tls-roots", "no-such-file"], "no-such-file cannot be read"),
        (["list", "--api-key", "two\nlines"], "API key"),
        (["delete", "a1B2c3D4", "e5F6g7H8", "--etag", "x"], "--etag"),
        (["keys", "create", "maren", "--direct", "--json"], "--direct"),
        (["store"], "There is no text"),
    ],
)
async def test_a_command_line_without_sense_is_2(command, arguments, said):
    outcome = await command(*arguments)
    assert (2, "", True) == (outcome.code, outcome.out, said in outcome.err)


async def test_a_server_that_is_away_is_6_with_a_hint(command):
    outcome = await command("find", "x", "--server", "127.0.0.1:1")
    assert 6 == outcome.code
    assert outcome.err.startswith("lorebank: Nothing answers at 127.0.0.1:1")
    assert "lorebank serve" in outcome.err


async def test_with_json_a_failure_is_an_object_on_standard_error(command):
    outcome = await command("--json", "find", "x", "--server", "127.0.0.1:1")
    assert ("", "UNAVAILABLE") == (outcome.out, json.loads(outcome.err)["error"]["code"])


async def test_global_options_stand_before_or_after_the_command(lorebank, server):
    before = await lorebank("--json", "list")
    after = await lorebank("list", "--json", "--server", server.address)
    assert ([], []) == (before.json, after.json)


async def test_a_wrong_key_is_5_and_says_what_to_set(lorebank):
    outcome = await lorebank("--api-key", "lb_wrong", "list")
    assert (5, True) == (outcome.code, "LOREBANK_API_KEY" in outcome.err)
