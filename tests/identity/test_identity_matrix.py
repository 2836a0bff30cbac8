"""Every procedure of the contract, called by every role in its own, another's and no space at all."""

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from grpc import StatusCode
from identity_world import governed_world

from lorebank.v1 import knowledge_service_pb2, memory_service_pb2, space_service_pb2

PROCEDURES = {
    (service.name, procedure.name): procedure
    for module in (memory_service_pb2, knowledge_service_pb2, space_service_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
    for procedure in service.methods
}

# The contract in a few words: what is not named here is for writers, and of SpaceService for admins.
RANKS = {"reader": 1, "writer": 2, "reviewer": 3, "admin": 4, "operator": 4}
OPEN_TO_READERS = {
    "MemoryService": "Find Graph GetMemory BatchGetMemories ListMemories ListRevisions RenderContext ExplainFind "
    "ListBallots",
    "KnowledgeService": "GetEntities ListEntities ListRelations ListCases MatchCases",
    "SpaceService": "GetSpace ListSpaces ListPacks GetStats GetEngagement WatchEvents",
}
FOR_REVIEWERS = {"ReviewMemory"}
SERVED = {
    *("Store", "BatchStore", "Find", "Vote", "Supersede", "Graph", "GetMemory", "BatchGetMemories", "ListMemories"),
    *("UpdateMemory", "DeleteMemory", "UndeleteMemory", "ListRevisions"),
    *("CreateSpace", "GetSpace", "ListSpaces", "UpdateSpace", "DeleteSpace", "CreateKey", "ListKeys", "RevokeKey"),
    *("CheckIntegrity", "Reindex"),
}
# Enough of a request for the server to look at its space, and not enough to change anything.
FILLED = {
    "UpdateSpace": {"update_mask": {"paths": ["display_name"]}},
    "CreateSpace": {"space": {"language": "no such language"}},
    "RevokeKey": {"id": "nokeyid0"},
    "Reindex": {"model": "no such model"},
}
OWN, OTHER, UNKNOWN = "space-own", "space-two", "space-not"
MAY_BE_TOLD = {
    StatusCode.OK,
    StatusCode.INVALID_ARGUMENT,
    StatusCode.NOT_FOUND,
    StatusCode.FAILED_PRECONDITION,
    StatusCode.ALREADY_EXISTS,
}


@pytest.fixture(scope="module")
async def world(database_factory, embedder):
    async with governed_world(database_factory, embedder, OWN, OTHER) as opened:
        yield opened


@pytest.fixture(scope="module")
async def secrets(world):
    found = {role: (await world.key(OWN, role, role)).secret for role in RANKS if role != "operator"}
    return {**found, "operator": world.operator, "nobody": ""}


def least_rank(service, name):
    if name in OPEN_TO_READERS[service].split():
        return RANKS["reader"]
    if name in FOR_REVIEWERS:
        return RANKS["reviewer"]
    return RANKS["admin"] if service == "SpaceService" else RANKS["writer"]


def named_space(procedure):
    """The field that says which space; None where there is none."""
    field = procedure.input_type.fields_by_name.get("space")
    if field is None:
        return None
    return "id" if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE else "space"


def request_to(procedure, space):
    request = GetMessageClass(procedure.input_type)(**FILLED.get(procedure.name, {}))
    where = named_space(procedure)
    if where == "id":
        request.space.id = space
    elif where:
        request.space = space
    return request


async def ask(world, secrets, role, service, name, space):
    procedure = PROCEDURES[service, name]
    outcome = await world.call(f"lorebank.v1.{service}", procedure, request_to(procedure, space), secret=secrets[role])
    if outcome.code is not StatusCode.OK:
        assert "lorebank" == outcome.domain
        assert outcome.reason
        assert outcome.message
    return outcome


def each(roles, condition):
    """Parametrizes over the roles and procedures that meet the condition."""
    cases = [(role, *key) for key in PROCEDURES for role in roles if condition(RANKS.get(role, 0), *key)]
    return pytest.mark.parametrize(("role", "service", "name"), [pytest.param(*c, id="-".join(c)) for c in cases])


def sufficient(rank, service, name):
    return rank >= least_rank(service, name)


def insufficient(rank, service, name):
    return not sufficient(rank, service, name)


def sufficient_where_named(rank, service, name):
    return sufficient(rank, service, name) and named_space(PROCEDURES[service, name]) is not None


@each(["nobody"], insufficient)
async def test_without_a_credential_nothing_is_answered(world, secrets, role, service, name):
    told = {(await ask(world, secrets, role, service, name, space)).without(space) for space in (OWN, UNKNOWN)}
    assert {(StatusCode.UNAUTHENTICATED, "CREDENTIAL_REQUIRED")} == {told_one[:2] for told_one in told}
    assert 1 == len(told)


@each(RANKS, insufficient)
async def test_a_role_below_the_procedures_is_refused_whatever_the_space(world, secrets, role, service, name):
    told = {(await ask(world, secrets, role, service, name, space)).without(space) for space in (OWN, OTHER, UNKNOWN)}
    assert {(StatusCode.PERMISSION_DENIED, "ROLE_REQUIRED")} == {told_one[:2] for told_one in told}
    assert 1 == len(told)


@each(RANKS, sufficient)
async def test_in_its_own_space_a_sufficient_role_is_never_refused(world, secrets, role, service, name):
    outcome = await ask(world, secrets, role, service, name, "default" if role == "operator" else OWN)
    if name not in SERVED:
        assert (StatusCode.UNIMPLEMENTED, "PROCEDURE_NOT_SERVED") == (outcome.code, outcome.reason)
    elif name == "CreateSpace" and role == "admin":
        assert (StatusCode.PERMISSION_DENIED, "OPERATOR_REQUIRED") == (outcome.code, outcome.reason)
    else:
        assert outcome.code in MAY_BE_TOLD
        assert "SPACE_NOT_FOUND" != outcome.reason


@each(RANKS, sufficient_where_named)
async def test_a_space_of_others_looks_like_none_at_all(world, secrets, role, service, name):
    other = await ask(world, secrets, role, service, name, OTHER)
    unknown = await ask(world, secrets, role, service, name, UNKNOWN)
    missing = (StatusCode.NOT_FOUND, "SPACE_NOT_FOUND")
    if service == "SpaceService" and name not in SERVED:
        assert {StatusCode.UNIMPLEMENTED} == {other.code, unknown.code}
    elif service == "SpaceService" and role == "operator":
        assert other.code in MAY_BE_TOLD
        assert missing != (other.code, other.reason)
        assert name == "CreateSpace" or missing == (unknown.code, unknown.reason)
        return
    elif name == "CreateSpace":
        assert {(StatusCode.PERMISSION_DENIED, "OPERATOR_REQUIRED")} == {(o.code, o.reason) for o in (other, unknown)}
    else:
        assert missing == (other.code, other.reason)
    assert other.without(OTHER) == unknown.without(UNKNOWN)


def test_what_is_served_is_of_the_contract():
    assert set() == SERVED - {name for _, name in PROCEDURES}
