"""A proxy before a Redis server: keeps what was asked, loses or delays what it is told to."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self

import hiredis

from tests.support.servers import Server

Command = list[bytes]


class Proxy:
    """`async with Proxy(server) as proxy:` and connect to `proxy.url`.

    A reply that is lost belongs to a request that the server has carried out; a request that is
    refused never reached it. In both cases the connection ends, as in real life.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._socket = server.folder / "proxy"
        self._listener: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._lose, self._refuse, self._detain = 0, 0, 0
        self._news = asyncio.Event()
        self.commands: list[Command] = []
        """Every command that was sent to us, in order."""
        self.requests_pass = asyncio.Event()
        self.replies_pass = asyncio.Event()
        self.late_pass = asyncio.Event()
        """Lets requests through that were detained."""
        self.late_came = asyncio.Event()
        """One that was detained has been carried out."""
        self.requests_pass.set()
        self.replies_pass.set()
        self.delay = 0.0

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_unix_server(self._accept, self._socket)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._listener:
            self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        return f"unix://{self._socket}?db=0"

    @property
    def pipelines(self) -> int:
        """How many pipelines were sent: each begins with the guard, as text."""
        return sum(command[0] == b"EVAL" for command in self.commands)

    def move_to(self, server: Server) -> None:
        """New connections reach that server; the old ones stay where they are."""
        self._server = server

    def lose_replies(self, count: int = 1) -> None:
        """The server answers, nobody hears it."""
        self._lose = count

    def refuse_requests(self, count: int = 1) -> None:
        """The server never hears of it."""
        self._refuse = count

    def detain_requests(self, count: int = 1) -> None:
        """The client loses its connection; what it sent comes to the server once `late_pass` is."""
        self._detain = count

    def sent(self, sha: str) -> list[Command]:
        """The EVALSHA commands of one script, in order."""
        return [c for c in self.commands if c[0] == b"EVALSHA" and c[1] == sha.encode()]

    async def until_sent(self, sha: str, count: int = 1) -> None:
        """Wait until a script was sent so many times; pytest's time limit ends the wait."""
        while len(self.sent(sha)) < count:
            self._news.clear()
            await self._news.wait()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError):
                await self._pass_on(reader, writer)
        finally:
            await _closed(writer)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_unix_connection(self._server.socket)
        try:
            while request := await _whole_request(reader):
                commands = parsed(request)
                self.commands += commands
                self._news.set()
                guarded = any(command[0] == b"EVAL" for command in commands)
                await self.requests_pass.wait()
                if guarded and self._refuse:
                    self._refuse -= 1
                    return
                if guarded and self._detain:
                    self._detain -= 1
                    await _closed(writer)
                    await self.late_pass.wait()
                    server_writer.write(request)
                    await _whole_replies(server_reader, len(commands))
                    self.late_came.set()
                    return
                server_writer.write(request)
                replies = await _whole_replies(server_reader, len(commands))
                await asyncio.sleep(self.delay)
                await self.replies_pass.wait()
                if guarded and self._lose:
                    self._lose -= 1
                    return
                writer.write(replies)
        finally:
            await _closed(server_writer)


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def _whole_request(reader: asyncio.StreamReader) -> bytes:
    """All that a client has sent, to the end of a command; empty at its end."""
    request = b""
    while chunk := await reader.read(1 << 20):
        request += chunk
        with contextlib.suppress(ValueError):
            parsed(request)
            return request
    return b""


async def _whole_replies(reader: asyncio.StreamReader, count: int) -> bytes:
    replies, parser = b"", hiredis.Reader(notEnoughData=_MISSING)
    while count:
        chunk = await reader.read(1 << 20)
        if not chunk:
            raise ConnectionResetError
        replies += chunk
        parser.feed(chunk)
        while count and parser.gets() is not _MISSING:
            count -= 1
    return replies


_MISSING = object()


def parsed(request: bytes) -> list[Command]:
    """The commands in a request; ValueError where it ends within one."""
    commands, at = [], 0
    while at < len(request):
        count, at = _number(request, at)
        command = []
        for _ in range(count):
            size, at = _number(request, at)
            command.append(request[at : at + size])
            at += size + 2
        commands.append(command)
    if at != len(request):
        raise ValueError("incomplete")
    return commands


def _number(request: bytes, at: int) -> tuple[int, int]:
    end = request.index(b"\r\n", at)
    return int(request[at + 1 : end]), end + 2
