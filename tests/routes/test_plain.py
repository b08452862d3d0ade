"""Plain requests are answered as others are, and what is not plain makes way for aiohttp."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from email.utils import parsedate_to_datetime

import pytest

from autoscale_enforcer.errors import LedgerUnavailable, NotFound, ServiceError, WireError
from tests.support.port import GET, POST, Client, OpenPort, is_so, ports
from tests.support.replica import until

SOON = timedelta(milliseconds=500)


@pytest.fixture
async def open_port() -> AsyncIterator[OpenPort]:
    async with ports(with_plain=True) as open_one:
        yield open_one


def post(body: bytes) -> bytes:
    return b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


async def test_a_plain_request_gets_a_whole_answer(open_port: OpenPort) -> None:
    port = await open_port(answer='{"a": 1}')
    client = await port.connect()

    await client.send(post(b"asked"))
    status, headers, body = await client.reply()

    assert (status, body, port.bodies) == (200, b'{"a": 1}', [b"asked"])
    assert headers.pop("Date")
    assert set(headers.items()) == {
        ("Content-Type", "application/json"),
        ("Content-Length", "8"),
        ("X-Replica", "r1"),
    }


async def test_an_answer_says_when_it_was_given(open_port: OpenPort) -> None:
    port = await open_port()
    client = await port.connect()
    others = await port.connect()

    await client.send(POST)
    await others.send(GET)

    (_, plain, _), (_, usual, _) = await client.reply(), await others.reply()
    apart = parsedate_to_datetime(plain["Date"]) - parsedate_to_datetime(usual["Date"])
    assert abs(apart) <= timedelta(seconds=1)


async def test_one_connection_is_answered_as_often_as_it_asks(open_port: OpenPort) -> None:
    port = await open_port()
    client = await port.connect()

    assert [await client.ask(POST) for _ in range(5)] == [200] * 5

    assert port.asked == ["plain"] * 5
    assert (port.door.places.taken, port.door.turns.count) == (1, 0)


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (WireError("pod", "is required"), 400, b"pod: is required\n"),
        (NotFound("pod x is not known"), 404, b"pod x is not known\n"),
        (LedgerUnavailable("Redis is away"), 503, b"Redis is away\n"),
        (ServiceError("no status"), 500, b"internal error\n"),
        (KeyError("bug"), 500, b"internal error\n"),
    ],
)
async def test_an_error_is_told_as_the_table_says(
    open_port: OpenPort, error: Exception, status: int, text: bytes
) -> None:
    port = await open_port()
    port.raises[b"{}"] = error
    client = await port.connect()

    await client.send(POST)

    found = await client.reply()
    assert (found[0], found[2]) == (status, text)
    assert found[1]["Content-Type"] == "text/plain; charset=utf-8"
    assert found[1]["X-Replica"] == "r1"
    assert await client.ask(POST) == status


async def test_a_bug_is_logged_with_what_was_asked(
    open_port: OpenPort, caplog: pytest.LogCaptureFixture
) -> None:
    port = await open_port()
    port.raises[b"{}"] = KeyError("bug")

    with caplog.at_level(logging.ERROR):
        await (await port.connect()).ask(POST)

    (record,) = caplog.records
    assert record.getMessage() == "POST /"
    assert record.exc_info


@pytest.mark.parametrize(
    "other",
    [
        GET,
        POST.replace(b"Host: x", b"Host: x\r\nX-Other: y"),
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    ],
    ids=["method", "header", "chunked"],
)
async def test_what_is_not_plain_is_answered_by_aiohttp_from_there_on(
    open_port: OpenPort, other: bytes
) -> None:
    port = await open_port()
    client = await port.connect()

    statuses = [await client.ask(each) for each in (POST, other, POST)]

    assert statuses == [200] * 3
    assert [port.asked[0] == "plain", "plain" in port.asked[1:]] == [True, False]
    assert (port.door.places.taken, len(port.door._connections)) == (1, 1)


async def test_a_request_in_pieces_is_answered(open_port: OpenPort) -> None:
    port = await open_port()
    client = await port.connect()

    for at in range(len(POST)):
        await client.send(POST[at : at + 1])
        await asyncio.sleep(0)

    assert (await client.reply())[0] == 200


async def test_what_is_sent_ahead_of_an_answer_waits_for_it(open_port: OpenPort) -> None:
    port = await open_port(answers=False)
    client = await port.ask_in_vain(sent=post(b"first"))

    await client.send(post(b"second"))
    await asyncio.sleep(0.05)
    while_waiting = list(port.bodies)
    await client.send(GET)
    port.may_answer.set()

    assert [(await client.reply())[0] for _ in range(3)] == [200] * 3
    assert while_waiting == [b"first"]
    assert port.asked in (["plain", "POST", "GET"], ["plain", "plain", "GET"])


async def test_who_sends_ahead_without_end_is_not_read_on(open_port: OpenPort) -> None:
    """What came would have been kept until the memory was full."""
    port = await open_port(answers=False)
    client = await port.ask_in_vain(sent=POST)

    client.writer.write(b"x" * 50_000_000)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(client.writer.drain(), 0.5)

    (connection,) = port.door._connections
    assert len(connection._ahead) < 2_000_000  # type: ignore[attr-defined]


# Time


async def test_an_idle_connection_ends_when_its_time_is_over(open_port: OpenPort) -> None:
    port = await open_port(read_timeout=SOON, keep_alive=timedelta(seconds=1))
    client = await port.connect()
    await client.ask(POST)
    answered = asyncio.get_running_loop().time()

    assert await client.is_closed()

    assert 1 <= asyncio.get_running_loop().time() - answered < 5


async def test_an_idle_connection_stays_longer_than_a_head_may_take(open_port: OpenPort) -> None:
    port = await open_port(read_timeout=SOON)
    client, other = await port.connect(), await port.connect()
    await client.ask(POST)

    assert await other.is_closed()

    assert await client.ask(POST) == 200
    assert port.asked == ["plain", "plain"]


async def test_a_slow_handler_is_not_its_clients_fault(open_port: OpenPort) -> None:
    port = await open_port(answers=False, read_timeout=SOON)
    client, other = await port.ask_in_vain(sent=POST), await port.connect()

    assert await other.is_closed()

    port.may_answer.set()
    assert (await client.reply())[0] == 200


async def test_an_answer_that_is_not_taken_ends_its_connection(open_port: OpenPort) -> None:
    port = await open_port(answer="x" * 20_000_000, read_timeout=SOON)
    client = await port.connect()

    await client.send(POST)

    await until(lambda: is_so(len(port.asked) == 1))
    await port.holds(0)


async def test_an_answer_that_is_taken_late_is_followed_by_the_next(open_port: OpenPort) -> None:
    port = await open_port(answer="x" * 20_000_000)
    client = await port.connect()

    await client.send(POST)
    await until(lambda: is_so(port.door.turns.count == 0 and len(port.asked) == 1))
    await client.send(POST)

    assert [(await client.reply())[0] for _ in range(2)] == [200, 200]


# Places and turns


async def test_more_at_once_than_are_worked_on_are_told_to_come_back(open_port: OpenPort) -> None:
    port = await open_port(answers=False, requests=4)
    busy = [await port.ask_in_vain(sent=POST), await port.ask_in_vain(sent=POST)]
    client, other = await port.connect(), await port.connect("127.0.0.2")

    await client.send(POST)
    status, headers, text = await client.reply()
    await other.send(POST)
    port.may_answer.set()

    assert (status, headers["Retry-After"], headers["X-Replica"]) == (503, "1", "r1")
    assert text == b"too many requests at once: ask again\n"
    for waiting in [*busy, other]:
        assert (await waiting.reply())[0] == 200
    assert await client.ask(POST) == 200


async def test_work_counts_until_it_ends_though_its_client_has_gone(open_port: OpenPort) -> None:
    port = await open_port(answers=False, requests=2)
    client = await port.ask_in_vain(sent=POST)
    client.writer.close()
    await port.holds(0)

    assert await (await port.connect()).ask(POST) == 503

    port.may_answer.set()
    await until(lambda: is_so(port.door.turns.count == 0))
    assert await (await port.connect()).ask(POST) == 200


async def test_a_newcomer_is_closed_when_all_places_are_busy(open_port: OpenPort) -> None:
    port = await open_port(answers=False, connections=2)
    busy = [await port.ask_in_vain(sent=POST), await port.ask_in_vain("127.0.0.2", sent=POST)]

    assert await (await port.connect()).is_closed()

    port.may_answer.set()
    assert [(await each.reply())[0] for each in busy] == [200, 200]


async def test_a_client_that_was_answered_keeps_its_place_beside_silent_ones(
    open_port: OpenPort,
) -> None:
    port = await open_port(connections=5)
    client = await port.connect()
    await client.ask(POST)

    silent = [await port.connect() for _ in range(20)]

    assert await client.ask(POST) == 200
    assert await silent[0].is_closed()


# The end


async def test_a_drain_ends_idle_connections_and_waits_for_answers(open_port: OpenPort) -> None:
    port = await open_port(answers=False)
    idle, busy = await port.connect(), await port.ask_in_vain(sent=POST)

    port.door.stop_listening()
    draining = asyncio.ensure_future(port.door.drain())

    assert await idle.is_closed()
    assert not draining.done()
    port.may_answer.set()
    status, headers, _ = await busy.reply()
    assert (status, headers["Connection"]) == (200, "close")
    await draining
    assert await busy.is_closed()


async def test_closing_ends_what_is_still_worked_on(open_port: OpenPort) -> None:
    port = await open_port(answers=False)
    client: Client = await port.ask_in_vain(sent=POST)

    await port.door.close()

    assert await client.is_closed()
    assert (port.door.turns.count, port.door._tasks) == (0, set())
