async def test_a_space_is_created_changed_listed_and_deleted(lorebank):
    created = await lorebank("spaces", "create", "acme", "--display-name", "Acme", "--half-life-days", "30")
    changed = await lorebank("spaces", "update", "acme", "--default-confidence", "0.5", "--clear", "display_name")
    listed = await lorebank("spaces", "list")
    assert ["half-life", "30 days"] in created.rows
    assert [["name", "-"], ["confidence", "0.5"]] == [row for row in changed.rows if row[0] in {"name", "confidence"}]
    assert [["acme", "english", ""], ["default", "english", ""]] == listed.rows

    counted = await lorebank("spaces", "delete", "acme")
    digest = dict(counted.rows)["digest"]
    deleted = await lorebank("spaces", "delete", "acme", "--confirm", digest)
    assert (True, [["DELETED", "acme"]]) == ("Nothing is deleted yet" in counted.err, deleted.rows)
    assert 3 == (await lorebank("spaces", "get", "acme")).code


async def test_a_key_is_created_used_listed_and_revoked(lorebank):
    root = (await lorebank("keys", "create", "--owner", "root", "--role", "admin")).out.strip()
    maren = (await lorebank("--api-key", root, "keys", "create", "maren", "--role", "reader")).out.strip()
    refused = await lorebank("--api-key", maren, "store", "The shop is deployed with Argo.")
    listed = {row[1]: row for row in (await lorebank("--api-key", root, "keys", "list")).rows}
    assert (5, ["reader", "-", "valid"]) == (refused.code, listed["maren"][2:5])

    revoked = await lorebank("--api-key", root, "keys", "revoke", listed["maren"][0])
    assert [["REVOKED", listed["maren"][0], "maren"]] == revoked.rows
    assert 5 == (await lorebank("--api-key", maren, "list")).code
    listed = {row[1]: row for row in (await lorebank("--api-key", root, "keys", "list")).rows}
    assert ("revoked", "valid") == (listed["maren"][4], listed["root"][4])


async def test_a_key_is_one_document_in_json(lorebank):
    document = (await lorebank("keys", "create", "maren", "--json")).json
    assert ("maren", ["ROLE_WRITER"], True) == (
        document["key"]["owner"],
        document["key"]["roles"],
        bool(document["secret"]),
    )
