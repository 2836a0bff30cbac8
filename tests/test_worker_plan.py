"""What several serving processes are given: one address, which nobody else gets, and what each needs of its own."""

import socket

import pytest

from lorebank_server.config import ConfigurationError, Settings
from lorebank_server.listen_address import reserved
from lorebank_server.worker_plan import worker_plan


def listening(port: int = 0, *, shared: bool) -> socket.socket:
    taken = socket.socket()
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, shared)
    try:
        taken.bind(("127.0.0.1", port))
        taken.listen()
    except OSError:
        taken.close()
        raise
    return taken


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:0", "0.0.0.0:0"])
def test_a_reserved_address_is_refused_to_others_until_it_is_given_up(listen):
    with reserved(listen) as address:
        host, _, port = address.rpartition(":")
        assert int(port) > 0
        assert host == listen.rpartition(":")[0]
        with pytest.raises(ConfigurationError, match=f"Cannot listen on {address}: another program"), reserved(address):
            pass
    with reserved(address) as again:
        assert address == again


@pytest.mark.parametrize("shared", [False, True])
def test_an_address_on_which_somebody_listens_is_refused_even_if_he_would_share_it(shared):
    with listening(shared=shared) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigurationError), reserved(address):
            pass


def test_those_who_share_may_listen_and_get_the_connections():
    with reserved("127.0.0.1:0") as address:
        port = int(address.rpartition(":")[2])
        with listening(port, shared=True), listening(port, shared=True) as second:
            assert second.getsockname() == ("127.0.0.1", port)
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        with pytest.raises(OSError, match="in use"):
            listening(port, shared=False)


def test_connections_that_linger_do_not_count():
    with listening(shared=False) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
            accepted, _ = server.accept()
            accepted.close()  # who closes first keeps the port busy for a minute
            client.recv(1)
    with reserved(f"127.0.0.1:{port}") as address:
        assert f"127.0.0.1:{port}" == address


def test_an_address_of_another_machine_is_refused():
    with pytest.raises(ConfigurationError, match=r"Cannot listen on 192\.0\.2\.1:50051"), reserved("192.0.2.1:50051"):
        pass


def test_one_process_is_started_as_if_there_was_no_plan():
    with listening(shared=False) as taken:
        settings = Settings(listen=f"127.0.0.1:{taken.getsockname()[1]}", metrics_listen="127.0.0.1:9464")
        with worker_plan(settings) as plan:
            assert (({},), {}) == (plan.variables, plan.postgres_settings)


def test_several_share_an_address_and_have_pages_of_their_own():
    with worker_plan(Settings(listen="127.0.0.1:0", workers=3, metrics_listen="[::1]:9464")) as plan:
        addresses = {variables["LOREBANK_LISTEN"] for variables in plan.variables}
        pages = [variables["LOREBANK_METRICS_LISTEN"] for variables in plan.variables]
    (address,) = addresses
    assert not address.endswith(":0")
    assert ["[::1]:9464", "[::1]:9465", "[::1]:9466"] == pages


def test_their_pages_need_ports():
    settings = Settings(listen="127.0.0.1:0", workers=3, metrics_listen="127.0.0.1:65534")
    with pytest.raises(ConfigurationError, match="choose one up to 65533"), worker_plan(settings):
        pass
    with worker_plan(Settings(listen="127.0.0.1:0", workers=3, metrics_listen="127.0.0.1:0")) as plan:
        assert all("LOREBANK_METRICS_LISTEN" not in variables for variables in plan.variables)


def test_postgres_has_connections_for_all_their_pools():
    with worker_plan(Settings(listen="127.0.0.1:0", workers=3, database_pool_size=40)) as plan:
        assert int(plan.postgres_settings["max_connections"]) > 3 * (40 + 20)
    with worker_plan(Settings(listen="127.0.0.1:0", workers=2, database_pool_size=2)) as plan:
        assert "60" == plan.postgres_settings["max_connections"]
