"""The shared ports of `dev`: found, refused in clear words, and kept from others."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from autoscale_enforcer.dev.ports import HOST, PortTaken, hold_ports
from autoscale_enforcer.dev.ready_line import BoundPorts


def listening(port: int = 0, *, reuse_port: bool = False) -> socket.socket:
    return socket.create_server((HOST, port), reuse_port=reuse_port)


@pytest.fixture(params=[False, True], ids=["of another program", "of replicas of another dev"])
def taken(request: pytest.FixtureRequest) -> Iterator[int]:
    with listening(reuse_port=request.param) as server:
        yield int(server.getsockname()[1])


def test_hold_ports_finds_three_free_ones_that_replicas_can_share() -> None:
    with hold_ports(BoundPorts()) as ports:
        assert len({ports.extender, ports.agent, ports.admin}) == 3
        with (
            listening(ports.admin, reuse_port=True) as one,
            listening(ports.admin, reuse_port=True) as two,
        ):
            one.close()
            socket.create_connection((HOST, ports.admin)).close()
            two.accept()[0].close()


def test_hold_ports_keeps_a_port_from_other_programs() -> None:
    with hold_ports(BoundPorts()) as ports, pytest.raises(OSError, match="in use"):
        listening(ports.agent)


def test_hold_ports_keeps_a_port_from_another_dev_before_any_replica_listens() -> None:
    with (
        hold_ports(BoundPorts()) as ports,
        pytest.raises(PortTaken, match="in use"),
        hold_ports(BoundPorts(admin=ports.admin)),
    ):
        pass


def test_hold_ports_refuses_a_taken_one_and_names_it(taken: int) -> None:
    with pytest.raises(PortTaken) as refused, hold_ports(BoundPorts(agent=taken)):
        pass

    assert str(refused.value) == (
        f"port {taken} is in use by another program, or another dev: give another with "
        "--agent-port, or 0 for any free one"
    )


def test_hold_ports_takes_one_whose_last_connections_still_linger() -> None:
    with listening() as server:
        port = int(server.getsockname()[1])
        client = socket.create_connection((HOST, port))
        server.accept()[0].close()  # closed by the server first, so that its side lingers
        client.close()

    with hold_ports(BoundPorts(extender=port)) as ports:
        assert ports.extender == port


def test_hold_ports_gives_them_back() -> None:
    with hold_ports(BoundPorts()) as ports:
        pass

    with hold_ports(ports) as again:
        assert again == ports
