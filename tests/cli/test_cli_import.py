import json

ONE, TWO = '{"content": "Fact number one."}', '{"content": "Fact number two.", "tags": ["a"]}'


async def test_lines_become_memories_and_may_be_imported_again(lorebank, tmp_path):
    file = tmp_path / "facts.jsonl"
    file.write_text(f"\ufeff{ONE}\n\n{TWO}\n")
    first, second = await lorebank("import", str(file)), await lorebank("import", str(file))
    assert [["CREATED", "2"], ["UNCHANGED", "0"], ["FAILED", "0"]] == first.rows
    assert [["CREATED", "0"], ["UNCHANGED", "2"], ["FAILED", "0"]] == second.rows
    assert (0, "") == (first.code, first.err)


async def test_lines_that_fail_are_named_and_the_others_are_stored(lorebank):
    lines = [ONE, "no json", '{"content": "no"}', '{"contents": "A name that is unknown."}', TWO]
    outcome = await lorebank("import", "-", "--json", stdin="\n".join(lines))
    report = outcome.json
    assert (1, 2, 3, True) == (outcome.code, report["created"], report["failed"], report["complete"])
    assert [2, 3, 4] == sorted(failure["line"] for failure in report["failures"])


async def test_failures_are_told_by_line(lorebank):
    outcome = await lorebank("import", "-", stdin=f"{ONE}\nno json\n")
    assert ("line 2: ", 1) == (outcome.err[:8], outcome.code)


async def test_bytes_that_are_no_text_are_a_failed_line(lorebank):
    outcome = await lorebank("import", "-", stdin=b'{"content": "\xff\xff\xff\xff\xff"}\n' + ONE.encode())
    assert [["CREATED", "1"], ["UNCHANGED", "0"], ["FAILED", "1"]] == outcome.rows


async def test_to_keep_both_stores_each_line_once(lorebank):
    options = ("import", "-", "--on-duplicate", "keep-both", "--batch-size", "2")
    lines = f"{ONE}\n{ONE}\n{TWO}"
    await lorebank(*options, stdin=lines)
    await lorebank(*options, stdin=lines)
    contents = [memory["content"] for memory in (await lorebank("list", "--json")).json]
    assert ["Fact number one.", "Fact number one.", "Fact number two."] == sorted(contents)


async def test_what_list_prints_can_be_imported(lorebank):
    await lorebank("store", "The shop is deployed with Argo.", "--title", "Deploy", "--tag", "argo")
    listed = (await lorebank("list", "--json")).json
    await lorebank("spaces", "create", "other")
    admin = (await lorebank("keys", "create", "maren", "--role", "admin")).out.strip()
    key = (await lorebank("--api-key", admin, "--space", "other", "keys", "create", "maren")).out.strip()
    await lorebank("--api-key", key, "import", "-", stdin="\n".join(json.dumps(memory) for memory in listed))
    copied = (await lorebank("--api-key", key, "list", "--json")).json
    assert [("Deploy", ["argo"])] == [(memory["title"], memory["tags"]) for memory in copied]


async def test_an_import_that_cannot_reach_the_server_is_6(command):
    outcome = await command("import", "-", "--server", "127.0.0.1:1", "--json", stdin=ONE)
    assert (6, False, 0) == (outcome.code, outcome.json["complete"], outcome.json["created"])
