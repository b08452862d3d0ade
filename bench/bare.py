"""The bare handler: aiohttp with our loop and server settings, and nothing of ours behind it.

It reads a whole body and answers as many bytes: what aiohttp takes before anything is done.
Prints its URL once it answers; ends with SIGTERM.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from aiohttp import web

from autoscale_enforcer.api.door.server_settings import (
    BACKLOG,
    connection_settings,
    run_loop,
    runner_settings,
)
from autoscale_enforcer.config.settings import LimitSettings


async def echo(request: web.Request) -> web.Response:
    """As many bytes as came."""
    return web.Response(body=await request.read(), content_type="application/json")


async def serve() -> None:
    """Until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    limits = LimitSettings()
    app = web.Application(client_max_size=limits.extender_body)
    app.router.add_post("/", echo)
    runner = web.AppRunner(app, **runner_settings(), **connection_settings(limits))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=BACKLOG).start()
    sys.stdout.write(f"http://127.0.0.1:{runner.addresses[0][1]}/\n")
    sys.stdout.flush()
    await stop.wait()
    await runner.cleanup()


if __name__ == "__main__":
    run_loop(serve())
