"""A hostile caller in a process of its own: `python -m tests.support.attacker KIND PORT COUNT`.

Prints a line of JSON when it has done its worst once, goes on until its stdin is closed, and
prints another line then. What it does it spreads evenly over the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import ssl
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass

if sys.version_info >= (3, 12):
    from typing import override
else:
    from typing_extensions import override

ADDRESSES = [f"127.0.0.{n}" for n in (1, 11, 12, 13)]
"""Where it calls from; the first is its victims' too."""
AT_ONCE = 100
"""Connections that are being opened at a time."""
TICK = 0.02
FLOODERS = 20
"""Connections of a flood, each of which asks again as soon as it is answered."""


@dataclass(slots=True)
class Tally:
    """What became of what it did."""

    opened: int = 0
    closed: int = 0
    """By the other side."""
    refused: int = 0
    """By a status from 400 on, or by no answer."""
    let_in: int = 0
    """Answered with 200."""
    broken: int = 0
    """Answered with 500, or 502 and above but 503."""

    def count(self, status: int) -> None:
        if status == 200:
            self.let_in += 1
        elif status >= 500 and status != 503:
            self.broken += 1
        else:
            self.refused += 1


Said = Callable[[], None]


class Slow(asyncio.Protocol):
    """Sends its head a byte at a time and never ends it."""

    def __init__(self, tally: Tally, open_ones: dict[Slow, None]) -> None:
        self._tally, self._open_ones = tally, open_ones
        self._transport: asyncio.Transport | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._tally.opened += 1
        self._open_ones[self] = None
        transport.write(b"POST / HTTP/1.1\r\nX: ")

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._tally.closed += 1
        self._open_ones.pop(self, None)

    def go_on(self) -> None:
        if self._transport:
            self._transport.write(b"y")


async def slow(port: int, count: int, tally: Tally, said: Said) -> None:
    """So many connections; then a byte a second on each, and a twentieth as many new ones."""
    loop = asyncio.get_running_loop()
    open_ones: dict[Slow, None] = {}
    gate = asyncio.Semaphore(AT_ONCE)

    async def open_one(number: int) -> None:
        async with gate:
            address = ADDRESSES[number % len(ADDRESSES)]
            with contextlib.suppress(OSError):
                await loop.create_connection(
                    lambda: Slow(tally, open_ones), "127.0.0.1", port, local_addr=(address, 0)
                )

    await asyncio.gather(*(open_one(number) for number in range(count)))
    await asyncio.sleep(1)
    said()
    number = 0
    while True:
        for one in list(open_ones)[: max(1, int(len(open_ones) * TICK))]:
            open_ones.pop(one)
            open_ones[one] = None  # the others have their turn first
            one.go_on()
        new = [open_one(number + step) for step in range(int(count / 20 * TICK))]
        number += len(new)
        await asyncio.gather(*new)
        await asyncio.sleep(TICK)


async def asked(port: int, sent: bytes, address: str, tls: ssl.SSLContext | None) -> int:
    """The status; 0: no answer."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError, ValueError):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1",
            port,
            ssl=tls,
            server_hostname="localhost" if tls else None,
            local_addr=(address, 0),
        )
        try:
            writer.write(sent)
            return int((await reader.readuntil(b"\r\n")).split()[1])
        finally:
            writer.transport.abort()
    return 0


async def flood(port: int, count: int, tally: Tally, said: Said) -> None:
    """What `$SENT` says, for ever, each time over a new connection; `count` times are its worst.

    With `$CA` over TLS, with `$CERT` showing that certificate; `$A_SECOND` at most.
    """
    pause = FLOODERS / float(os.environ.get("A_SECOND", "inf"))
    tls = None
    if "CA" in os.environ:
        tls = ssl.create_default_context(cafile=os.environ["CA"])
    if tls and "CERT" in os.environ:
        tls.load_cert_chain(os.environ["CERT"])
    sent = os.environ["SENT"].encode()

    async def ask_again_and_again(number: int) -> None:
        while True:
            tally.count(await asked(port, sent, ADDRESSES[number % len(ADDRESSES)], tls))
            await asyncio.sleep(pause)
            tally.opened += 1
            if tally.opened == count:
                said()

    await asyncio.gather(*(ask_again_and_again(number) for number in range(FLOODERS)))


KINDS: dict[str, Callable[[int, int, Tally, Said], Awaitable[None]]] = {
    "slow": slow,
    "flood": flood,
}


async def main(kind: str, port: int, count: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.nice(19)  # it has a machine of its own, really
    tally = Tally()

    def said() -> None:
        print(json.dumps(asdict(tally)), flush=True)  # noqa: T201 - that is what it is for

    attack = asyncio.ensure_future(KINDS[kind](port, count, tally, said))
    over = asyncio.ensure_future(asyncio.to_thread(sys.stdin.read))
    await asyncio.wait({attack, over}, return_when=asyncio.FIRST_COMPLETED)
    if attack.done():
        attack.result()
    said()
    os._exit(0)  # without a word to thousands of connections


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
