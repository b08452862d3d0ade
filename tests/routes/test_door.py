"""One port and its limits, over real sockets."""

from __future__ import annotations

import asyncio
import gc
from datetime import timedelta

import pytest

from autoscale_enforcer.api.door.connection import Connection
from autoscale_enforcer.api.door.plain_connection import PlainConnection
from autoscale_enforcer.api.metrics import Metrics
from autoscale_enforcer.errors import Overloaded
from tests.support.port import GET, LIVE, POST, OpenPort, is_so
from tests.support.replica import until

SOON = timedelta(milliseconds=500)

# Places


async def test_connections_beyond_the_limit_are_closed_at_once(open_port: OpenPort) -> None:
    port = await open_port(connections=5)

    clients = [await port.connect() for _ in range(20)]

    for client in clients[:15]:
        assert await client.is_closed()
    for client in clients[15:]:
        assert await client.ask() == 200
    assert (port.door.places.taken, port.door.places.evicted) == (5, 15)


async def test_a_client_that_was_answered_keeps_its_place_beside_silent_ones(
    open_port: OpenPort,
) -> None:
    port = await open_port(connections=5)
    client = await port.connect()
    await client.ask()

    for _ in range(20):
        await (await port.connect()).send(b"GET / HTTP/1.1\r\n")

    assert await client.ask() == 200


async def test_a_newcomer_is_closed_when_all_places_are_busy(open_port: OpenPort) -> None:
    port = await open_port(answers=False, connections=2)
    busy = [await port.ask_in_vain(), await port.ask_in_vain("127.0.0.2")]

    assert await (await port.connect()).is_closed()

    assert port.door.places.refused == 1
    port.may_answer.set()
    for client in busy:
        assert (await client.reply())[0] == 200


async def test_a_flood_from_one_address_leaves_the_places_of_others(open_port: OpenPort) -> None:
    port = await open_port(connections=5)
    quiet = await port.connect("127.0.0.2")

    for _ in range(20):
        await port.connect("127.0.0.3")

    assert await quiet.ask() == 200


async def test_a_connection_that_has_ended_leaves_its_place(open_port: OpenPort) -> None:
    port = await open_port()
    client = await port.connect()
    await client.ask()

    client.writer.close()

    await port.holds(0)
    assert port.door._connections == set()


def connections() -> list[object]:
    """All that this process has, open or not."""
    return [one for one in gc.get_objects() if type(one) in (Connection, PlainConnection)]


async def test_a_connection_that_has_ended_is_freed_at_once(open_port: OpenPort) -> None:
    """It referred to itself in a circle, and with TLS each held 30 KiB until a late collection."""
    others = connections()  # of other tests
    port = await open_port()
    client = await port.connect()
    await client.ask()
    gc.collect()
    gc.disable()
    try:
        client.writer.close()
        await port.holds(0)

        # Seldom: a worker may hold millions of objects of other tests.
        while any(one not in others for one in connections()):  # noqa: ASYNC110 - no event
            await asyncio.sleep(1)
    finally:
        gc.enable()


# Time


@pytest.mark.parametrize("sent", [b"", b"GET", b"GET / HTTP/1.1\r\nHost: x\r\n"])
async def test_a_head_that_does_not_arrive_ends_its_connection(
    open_port: OpenPort, sent: bytes
) -> None:
    port = await open_port(read_timeout=SOON)
    client = await port.connect()
    await client.send(sent)

    assert await client.is_closed()


async def test_a_second_head_must_arrive_in_time_too(open_port: OpenPort) -> None:
    port = await open_port(read_timeout=SOON)
    client = await port.connect()
    await client.ask()

    await client.send(b"GET / HTTP/1.1\r\n")

    assert await client.is_closed()


async def test_a_head_that_trickles_in_gains_no_time(open_port: OpenPort) -> None:
    """Each piece that arrived began the wait anew."""
    port = await open_port(read_timeout=SOON)
    client = await port.connect()
    ending = asyncio.ensure_future(client.is_closed())
    client.writer.write(b"GET / HTTP/1.1\r\nX: ")

    while not ending.done():
        client.writer.write(b"y")
        await asyncio.sleep(0.01)

    assert port.asked == []
    assert await ending


async def test_an_idle_connection_stays_longer_than_a_head_may_take(open_port: OpenPort) -> None:
    port = await open_port(read_timeout=SOON)
    client, other = await port.connect(), await port.connect()
    await client.ask()

    assert await other.is_closed()

    assert await client.ask() == 200


async def test_a_slow_handler_is_not_its_clients_fault(open_port: OpenPort) -> None:
    port = await open_port(answers=False, read_timeout=SOON)
    client, other = await port.ask_in_vain(), await port.connect()

    assert await other.is_closed()

    port.may_answer.set()
    assert (await client.reply())[0] == 200


async def test_an_answer_that_is_not_taken_ends_its_connection(open_port: OpenPort) -> None:
    port = await open_port(answer="x" * 20_000_000, read_timeout=SOON)
    client = await port.connect()

    await client.send(GET)

    await until(lambda: is_so(len(port.asked) == 1))
    await port.holds(0)


async def test_what_is_left_of_an_answer_must_be_taken_in_time_too(open_port: OpenPort) -> None:
    """Its connection was closing already, which took as long as the client liked."""
    port = await open_port(answer="x" * 20_000_000, read_timeout=SOON)
    client = await port.connect()

    await client.send(b"GET / HTTP/1.0\r\n\r\n")

    await until(lambda: is_so(len(port.asked) == 1))
    await port.holds(0)


# Heads


async def test_a_head_that_never_ends_is_refused(open_port: OpenPort) -> None:
    port = await open_port(header=1000)
    client = await port.connect()

    await client.send(b"GET / HTTP/1.1\r\n")
    for number in range(20):
        await client.send(b"X-%d: %s\r\n" % (number, b"y" * 50))

    assert (await client.reply())[0] == 431
    assert await client.is_closed()


async def test_a_head_that_is_too_long_as_a_whole_is_refused(open_port: OpenPort) -> None:
    port = await open_port(header=1000)
    client = await port.connect()

    await client.send(GET[:-2] + b"X: " + b"\r\nX: ".join([b"y" * 400] * 3) + b"\r\n\r\n")

    assert (await client.reply())[0] == 431
    assert port.asked == []
    assert await client.is_closed()


async def test_requests_that_are_sent_ahead_are_answered_in_order(open_port: OpenPort) -> None:
    port = await open_port(header=1000)
    client = await port.connect()

    await client.send((GET + POST) * 20)

    for _ in range(40):
        assert (await client.reply())[0] == 200
    assert port.asked == ["GET", "POST"] * 20


async def test_a_long_body_is_no_long_head(open_port: OpenPort) -> None:
    port = await open_port(header=1000)
    client = await port.connect()

    await client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n")
    for _ in range(300):
        await client.send(b"x" * 1000)

    assert (await client.reply())[0] == 200
    assert await client.ask() == 200


# Requests


@pytest.mark.parametrize("sent", [GET, POST])
async def test_more_requests_at_once_than_are_worked_on_are_told_to_come_back(
    open_port: OpenPort, sent: bytes
) -> None:
    port = await open_port(answers=False, requests=4)
    busy = [await port.ask_in_vain(), await port.ask_in_vain()]
    client, other = await port.connect(), await port.connect("127.0.0.2")

    await client.send(sent)
    status, headers, text = await client.reply()
    await other.send(sent)
    port.may_answer.set()

    assert (status, headers["Retry-After"], headers["X-Replica"]) == (503, "1", "r1")
    assert text == b"too many requests at once: ask again\n"
    assert (await other.reply())[0] == 200
    for waiting in busy:
        assert (await waiting.reply())[0] == 200
    assert await client.ask() == 200


async def test_bodies_that_trickle_in_are_no_requests_yet(open_port: OpenPort) -> None:
    port = await open_port(requests=2)
    for _ in range(10):
        await (await port.connect()).send(POST[:-1])

    assert await (await port.connect()).ask() == 200


async def test_work_counts_until_it_ends_though_its_client_has_gone(open_port: OpenPort) -> None:
    port = await open_port(answers=False, requests=2)
    client = await port.ask_in_vain()
    client.writer.close()
    await port.holds(0)

    assert await (await port.connect()).ask() == 503

    port.may_answer.set()
    await until(lambda: is_so(port.door.turns.count == 0))
    assert await (await port.connect()).ask() == 200


async def test_large_bodies_of_one_address_have_a_share_of_the_memory(open_port: OpenPort) -> None:
    """Each might be 64 MiB, and as many came as there are connections."""
    size = 1_000_000
    port = await open_port(extender_body=size)
    large = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size + b" " * (size - 1)
    slow = [await port.connect() for _ in range(2)]
    for client in slow:
        await client.send(large)
    await until(lambda: is_so(port.door.bodies.held > 1_700_000))
    refused, other = await port.connect(), await port.connect("127.0.0.2")

    assert await refused.ask(large + b" ") == 503
    assert await other.ask(large + b" ") == 200
    assert await (await port.connect()).ask(POST) == 200

    for client in slow:
        await client.send(b" ")
        assert (await client.reply())[0] == 200
    await until(lambda: is_so(port.door.bodies.held == 0))


# The end


async def test_a_drain_ends_idle_connections_at_once_and_waits_for_answers(
    open_port: OpenPort,
) -> None:
    port = await open_port(answers=False)
    busy, idle = await port.ask_in_vain(), await port.connect()
    await idle.ask(LIVE)

    port.door.stop_listening()
    draining = asyncio.ensure_future(port.door.drain())

    assert await idle.is_closed()
    assert not draining.done()
    with pytest.raises(ConnectionRefusedError):
        await port.connect()
    port.may_answer.set()
    assert (await busy.reply())[0] == 200
    await draining
    assert await busy.is_closed()


async def test_a_newcomer_who_was_at_the_door_is_answered_all_the_same(open_port: OpenPort) -> None:
    """The kernel had taken it in; closing the socket reset it."""
    port = await open_port()
    client = await port.connect()
    await client.send(GET)

    port.door.stop_listening()
    await port.door.drain()

    assert (await client.reply())[0] == 200
    assert await client.is_closed()


async def test_an_answer_during_a_drain_says_that_the_connection_ends(open_port: OpenPort) -> None:
    port = await open_port(answers=False)
    busy = await port.ask_in_vain()

    draining = asyncio.ensure_future(port.door.drain())
    await asyncio.sleep(0)
    port.may_answer.set()

    assert (await busy.reply())[1]["Connection"] == "close"
    await draining


# Metrics


async def test_metrics_tell_who_is_there_and_who_was_turned_away(open_port: OpenPort) -> None:
    port = await open_port(answers=False, connections=3, requests=2)
    full = await open_port(answers=False, connections=1)
    metrics = Metrics()
    metrics.watch_port("extender", port.door)
    metrics.watch_port("agents", full.door)
    await port.connect()
    await port.ask_in_vain("127.0.0.2")
    await port.ask_in_vain("127.0.0.3")
    newcomer = await port.connect("127.0.0.4")
    await full.ask_in_vain()
    turned_away = await full.connect()
    port.door.bodies.hold("127.0.0.1", 7)
    with pytest.raises(Overloaded):
        port.door.bodies.hold("127.0.0.1", 1 << 30)

    assert await newcomer.ask() == 503
    assert await turned_away.is_closed()

    lines = set(metrics.text().decode().splitlines())
    assert lines >= {
        'ae_connections{door="extender"} 3.0',
        'ae_connections{door="agents"} 1.0',
        'ae_connections_evicted_total{door="extender"} 1.0',
        'ae_connections_refused_total{door="extender"} 0.0',
        'ae_connections_refused_total{door="agents"} 1.0',
        'ae_requests_in_flight{door="extender"} 2.0',
        'ae_requests_refused_total{door="extender"} 1.0',
        'ae_large_body_bytes{door="extender"} 7.0',
        'ae_large_bodies_refused_total{door="extender"} 1.0',
    }
    port.door.bodies.drop("127.0.0.1", 7)
