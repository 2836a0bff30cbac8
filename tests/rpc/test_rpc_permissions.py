import pytest

from lorebank.v1 import knowledge_service_pb2, memory_service_pb2, space_service_pb2
from lorebank_server.domain.principal import Role
from lorebank_server.rpc.interceptors.unserved import ALTERNATIVES
from lorebank_server.rpc.permissions import REQUIRED_ROLES, acts_in_own_space, is_ours

SERVICES = [
    *memory_service_pb2.DESCRIPTOR.services_by_name.values(),
    *knowledge_service_pb2.DESCRIPTOR.services_by_name.values(),
    *space_service_pb2.DESCRIPTOR.services_by_name.values(),
]
METHODS = {f"/{service.full_name}/{method.name}": method for service in SERVICES for method in service.methods}


def test_the_table_has_every_procedure_of_the_contract_and_no_other():
    assert set(METHODS) == set(REQUIRED_ROLES)


def test_every_request_that_acts_in_its_own_space_can_name_it():
    without = [
        method
        for method, descriptor in METHODS.items()
        if acts_in_own_space(method) and "space" not in descriptor.input_type.fields_by_name
    ]
    assert [] == without


@pytest.mark.parametrize(
    ("method", "role"),
    [
        ("/lorebank.v1.MemoryService/Find", Role.READER),
        ("/lorebank.v1.MemoryService/Vote", Role.WRITER),
        ("/lorebank.v1.MemoryService/ReviewMemory", Role.REVIEWER),
        ("/lorebank.v1.SpaceService/GetSpace", Role.READER),
        ("/lorebank.v1.SpaceService/CreateKey", Role.ADMIN),
    ],
)
def test_roles_follow_the_contract(method, role):
    assert role is REQUIRED_ROLES[method]


def test_alternatives_are_for_procedures_of_the_contract():
    assert set() == set(ALTERNATIVES) - {method.rpartition("/")[2] for method in METHODS}


def test_health_and_reflection_are_not_ours():
    assert not is_ours("/grpc.health.v1.Health/Check")
    assert not acts_in_own_space("/lorebank.v1.SpaceService/GetSpace")
