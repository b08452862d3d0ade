"""A link does to a connection what it is told to, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.fault.kit.link import HOST, Link

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Pair]]


class Echo:
    """A server that answers what it is sent, and remembers it."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                self.heard.append(line)
                writer.write(line)
        except ConnectionError:
            pass
        finally:
            writer.close()


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    echo = Echo()
    async with await asyncio.start_server(echo.serve, HOST, 0) as server:
        echo.port = server.sockets[0].getsockname()[1]
        yield echo


@pytest.fixture
async def link(echo: Echo) -> AsyncIterator[Link]:
    async with Link(echo.port) as link:
        yield link


@pytest.fixture
async def connect(link: Link) -> AsyncIterator[Connect]:
    writers: list[asyncio.StreamWriter] = []

    async def connected() -> Pair:
        reader, writer = await asyncio.open_connection(HOST, link.port)
        writers.append(writer)
        return reader, writer

    yield connected
    for writer in writers:
        writer.transport.abort()


async def said(pair: Pair, line: bytes = b"x\n") -> bytes:
    """What comes back."""
    reader, writer = pair
    writer.write(line)
    return await reader.readline()


async def stays_silent(pair: Pair) -> bool:
    """Nothing comes back for a while, and no end either."""
    try:
        async with asyncio.timeout(0.2):
            await said(pair)
    except TimeoutError:
        return True
    return False


async def test_link_passes_on_what_is_said_both_ways(connect: Connect) -> None:
    pair = await connect()

    assert [await said(pair, b"a\n"), await said(pair, b"b\n")] == [b"a\n", b"b\n"]


async def test_delay_holds_each_piece_up(link: Link, connect: Connect) -> None:
    pair, clock = await connect(), asyncio.get_running_loop().time
    link.delay = 0.1
    began = clock()

    assert await said(pair) == b"x\n"
    assert clock() - began >= 0.2  # there and back


async def test_lost_reply_was_heard_and_ends_the_connection(
    link: Link, connect: Connect, echo: Echo
) -> None:
    pair = await connect()
    link.drop_share = 1

    assert await said(pair) == b""
    assert echo.heard == [b"x\n"]


async def test_half_open_connection_is_silent_and_reset_by_healing(
    link: Link, connect: Connect, echo: Echo
) -> None:
    pair = await connect()
    await said(pair)
    link.half_open()

    assert await stays_silent(pair)
    assert await stays_silent(await connect())
    link.heal()
    assert await said(await connect(), b"new\n") == b"new\n"
    with pytest.raises(ConnectionResetError):
        assert await said(pair)
    assert echo.heard == [b"x\n", b"new\n"]


async def test_reset_ends_what_is_open_and_lets_new_connections_in(
    link: Link, connect: Connect
) -> None:
    pair = await connect()
    await said(pair)

    link.reset()

    with pytest.raises(ConnectionResetError):
        assert await said(pair)
    assert await said(await connect()) == b"x\n"


async def test_cut_delivers_afterwards_what_was_on_its_way(
    link: Link, connect: Connect, echo: Echo
) -> None:
    pair = await connect()
    await said(pair, b"a\n")
    link.cut()

    assert await stays_silent(pair)
    assert echo.heard == [b"a\n"]
    link.heal()
    assert await pair[0].readline() == b"x\n"


async def test_reply_is_rewritten_and_a_request_is_not(echo: Echo) -> None:
    async with Link(echo.port, rewrite=lambda answer: answer.replace(b"1", b"2")) as link:
        reader, writer = await asyncio.open_connection(HOST, link.port)

        assert await said((reader, writer), b"1\n") == b"2\n"
        assert echo.heard == [b"1\n"]
        writer.transport.abort()
