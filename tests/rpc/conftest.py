import pytest
from rpc_doubles import FakeAuthenticator


@pytest.fixture
def authenticator():
    return FakeAuthenticator()
