"""Changes over the admin port: with the token only, and without one not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from autoscale_enforcer.api.change_rights import changes_need_token
from autoscale_enforcer.api.http import application, text_answer


class Door:
    """An admin port with one thing that can be changed and one that cannot."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url, self.session = url, session
        self.changes = 0

    async def change(
        self, *tokens: str, path: str = "/freeze", method: str = "POST"
    ) -> tuple[int, str]:
        """What a change with these Authorization headers is answered."""
        headers = [("Authorization", token) for token in tokens]
        async with self.session.request(method, self.url + path, headers=headers) as reply:
            if reply.status == 401:
                assert reply.headers["WWW-Authenticate"] == "Bearer"
            return reply.status, (await reply.text()).strip()


@pytest.fixture
async def open_door() -> AsyncIterator[Callable[[Path | None], Awaitable[Door]]]:
    async with AsyncExitStack() as stack:

        async def open_one(token_file: Path | None) -> Door:
            app = application("r1", checks=[changes_need_token(token_file)])
            runner = web.AppRunner(app, access_log=None)
            session = await stack.enter_async_context(aiohttp.ClientSession())
            door = Door("", session)

            async def change(_: web.Request) -> web.Response:
                door.changes += 1
                return text_answer(200, "changed")

            async def read(_: web.Request) -> web.Response:
                return text_answer(200, "read")

            for add in (app.router.add_post, app.router.add_put, app.router.add_delete):
                add("/freeze", change)
            app.router.add_get("/nodes", read)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            door.url = f"http://127.0.0.1:{site.port}"
            return door

        yield open_one


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("hush\n")
    return file


def put(file: Path, content: str | None) -> None:
    """This content, or no file."""
    file.unlink(missing_ok=True)
    if content is not None:
        file.write_text(content)


OpenDoor = Callable[[Path | None], Awaitable[Door]]


@pytest.mark.parametrize("sent", ["Bearer hush", "bearer  hush", "BEARER hush "])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_the_token_lets_a_change_in(
    open_door: OpenDoor, token_file: Path, sent: str, method: str
) -> None:
    door = await open_door(token_file)

    assert await door.change(sent, method=method) == (200, "changed")


@pytest.mark.parametrize(
    "sent",
    [
        [],
        [""],
        ["hush"],
        ["Bearer"],
        ["Bearer "],
        ["Basic hush"],
        ["Bearer hus"],
        ["Bearer hushh"],
        ["Bearer Hush"],
        ["Bearer hush x"],
        ["Bearer h\u00fcsh"],
        ["Bearer hush", "Bearer hush"],
        ["Bearer other", "Bearer hush"],
    ],
)
async def test_anything_else_does_not(
    open_door: OpenDoor, token_file: Path, sent: list[str]
) -> None:
    door = await open_door(token_file)

    status, text = await door.change(*sent)

    assert (status, door.changes) == (401, 0)
    assert "hush" not in text


@pytest.mark.parametrize("sent", ["Bearer ", "Bearer hush", "Bearer None"])
async def test_without_a_token_file_nobody_changes_anything(open_door: OpenDoor, sent: str) -> None:
    door = await open_door(None)

    status, text = await door.change(sent)

    assert (status, door.changes) == (403, 0)
    assert "--admin-token-file" in text


async def test_another_token_in_the_file_counts_at_once(
    open_door: OpenDoor, token_file: Path
) -> None:
    door = await open_door(token_file)
    await door.change("Bearer hush")

    put(token_file, "other")

    assert (await door.change("Bearer hush"))[0] == 401
    assert (await door.change("Bearer other"))[0] == 200


@pytest.mark.parametrize("sent", ["Bearer ", "Bearer hush", "Bearer None"])
async def test_a_file_that_is_made_later_lets_changes_in_from_then_on(
    open_door: OpenDoor, token_file: Path, sent: str
) -> None:
    """As of a Secret that is optional, and made or taken away while replicas run."""
    put(token_file, None)
    door = await open_door(token_file)

    status, text = await door.change(sent)
    put(token_file, "hush")

    assert (status, door.changes) == (403, 0)
    assert "--admin-token-file" in text
    assert await door.change("Bearer hush") == (200, "changed")


@pytest.mark.parametrize("content", ["", "two words"])
async def test_a_file_that_holds_no_token_any_more_lets_nobody_in(
    open_door: OpenDoor, token_file: Path, content: str
) -> None:
    door = await open_door(token_file)

    put(token_file, content)

    status, text = await door.change(f"Bearer {content}")
    assert (status, door.changes) == (503, 0)
    assert str(token_file) not in text


async def test_reads_need_no_token_and_unknown_paths_stay_unknown(
    open_door: OpenDoor, token_file: Path
) -> None:
    door = await open_door(token_file)

    assert await door.change(path="/nodes", method="GET") == (200, "read")
    assert (await door.change(path="/nodes", method="HEAD"))[0] == 200
    assert (await door.change(path="/nodes"))[0] == 405
    assert (await door.change(path="/nothing"))[0] == 404
