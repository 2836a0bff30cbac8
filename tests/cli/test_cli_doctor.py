"""``lorebank doctor`` says in words whether all is well, and what to do where it is not."""

import asyncpg

from lorebank.cli.doctor import about
from lorebank.v1.maintenance_pb2 import CheckIntegrityResponse


async def test_all_is_well(lorebank, server) -> None:
    await lorebank("store", "Logs are kept for ninety days.")

    outcome = await lorebank("doctor")

    assert 0 == outcome.code
    assert {row[1] for row in outcome.rows} == {"ok"}
    found = {row[0]: row[2] for row in outcome.rows}
    assert found.keys() == {"server", "model", "version", "postgres", "index", "vectors"}
    assert "1 memories, 1 vectors." == found["vectors"]
    assert "pgvector." == found["index"]
    assert found["server"].endswith(f"{server.address}.")
    assert "384 dimensions" in found["model"]


async def test_what_differs_is_told_and_repaired(lorebank, server) -> None:
    for fact in ("Logs are kept for ninety days.", "Alerts go to the engineer on call."):
        await lorebank("store", fact)
    connection = await asyncpg.connect(server.dsn)
    await connection.execute(
        "delete from embeddings where memory = (select uid from memories where body ->> 'content' like 'Logs%')"
    )
    await connection.close()

    sick = await lorebank("doctor")
    as_json = await lorebank("doctor", "--json")
    cured = await lorebank("doctor", "--repair", "--json")

    assert 1 == sick.code == as_json.code
    (problem,) = [row for row in sick.rows if row[1] == "PROBLEM"]
    assert ["vectors", "PROBLEM", "2 memories, 1 vectors, 1 missing; run 'lorebank doctor --repair'."] == problem
    assert not as_json.json["well"]
    assert 1 == as_json.json["integrity"]["missing"]
    assert (0, True) == (cured.code, cured.json["well"])
    assert (0, 1) == (cured.json["integrity"]["missing"], cured.json["integrity"]["repaired"])


async def test_a_server_that_is_not_there_is_a_problem_with_a_remedy(command) -> None:
    outcome = await command("doctor", "--server", "127.0.0.1:1", "--timeout", "1")

    assert 1 == outcome.code
    ((part, verdict, meaning),) = outcome.rows
    assert ("server", "PROBLEM") == (part, verdict)
    assert "lorebank serve" in meaning


async def test_without_a_key_that_may_it_says_which_one_is_needed(lorebank) -> None:
    created = await lorebank("keys", "create", "--owner", "ada", "--role", "admin", "--json")
    assert 0 == created.code

    outcome = await lorebank("doctor", "--json")

    assert 1 == outcome.code
    (finding,) = outcome.json["findings"]
    assert "key" == finding["part"]
    assert "LOREBANK_API_KEY" in finding["remedy"]


def test_an_index_far_behind_and_memories_without_a_model_are_problems() -> None:
    found = CheckIntegrityResponse(
        memories=9, vectors=7, missing=2, unembedded=2, index="qdrant", pending=5, server_version="0.1.0"
    )
    found.index_lag.FromSeconds(120)

    problems = {finding.part: finding for finding in about(found) if not finding.well}

    assert problems.keys() == {"index", "embedding", "vectors"}
    assert "5 writes behind, the oldest for 120 s" in problems["index"].meaning
    assert "2 memories wait" in problems["embedding"].meaning
    assert all(problem.remedy for problem in problems.values() if problem.part != "vectors")
