"""What a reflector does when its watch expires, ends, breaks or falls silent."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta

import msgspec
import pytest
from aiohttp import web

from autoscale_enforcer.cluster.kubernetes import paths
from autoscale_enforcer.cluster.kubernetes.answers import Action
from autoscale_enforcer.cluster.kubernetes.reflector import ReflectorSettings, latest
from autoscale_enforcer.cluster.kubernetes.transport import ApiSettings
from autoscale_enforcer.errors import ClusterUnavailable
from tests.support.fake_api.faults import (
    Cut,
    Fault,
    GoOn,
    Held,
    Lines,
    Refuse,
    Silence,
    SlowChunks,
    begin,
    error_event,
)
from tests.support.fake_api.samples import pod
from tests.support.fake_api.server import FakeApi
from tests.support.reflecting import Told, following

SECOND = timedelta(seconds=1)
BRIEF_WATCH = ReflectorSettings(watch_lasts=SECOND, pause=timedelta(milliseconds=20))
GONE = Refuse(410, "Expired", "too old resource version: 1000 (1500)")
BOOKMARK = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1000"}}}'


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi(bookmarks_every=None) as server:
        yield server


@pytest.fixture
def told() -> Told:
    return Told()


def bookmark_then_error() -> Lines:
    return Lines((BOOKMARK, *error_event(500, "InternalError").lines))


def versions(api: FakeApi) -> list[str]:
    """The version from which each watch began."""
    return [each.query["resourceVersion"] for each in api.requests("watch", "pods")]


async def test_reflector_tells_the_list_first_and_then_what_happens(
    api: FakeApi, told: Told
) -> None:
    api.store.create("pods", pod("old", uid="u1"))

    async with following(api, told) as follower:
        await follower.synced.wait()
        assert told.words == ["list 1001 old"]  # synced means that the sink has it
        await api.until("watch", "pods", 1)
        api.store.create("pods", pod("new", uid="u2"))
        api.store.update("pods", "default/old", lambda found: found["spec"].update(nodeName="n1"))
        api.store.remove("pods", "default/new")
        await told.until_told("DELETED new")

    assert told.words[1:] == ["ADDED new", "MODIFIED old", "DELETED new"]
    assert told.pods["u1"].node == "n1"
    assert (follower.version, follower.relists, follower.restarts) == ("1004", 0, 0)


async def test_list_is_live_and_in_pages_and_watch_asks_for_bookmarks_and_an_end(
    api: FakeApi, told: Told
) -> None:
    for number in range(5):
        api.store.create("pods", pod(f"p{number}"))

    async with following(api, told, page_size=2, watch_lasts=timedelta(seconds=240)) as follower:
        await api.until("watch", "pods", 1)

    lists = [dict(each.query) for each in api.requests("list", "pods")]
    assert [sorted(query) for query in lists] == [["limit"], *[["continue", "limit"]] * 2]
    (watch,) = (each.query for each in api.requests("watch", "pods"))
    assert watch["allowWatchBookmarks"] == "true"
    assert 240 <= int(watch["timeoutSeconds"]) <= 300
    assert watch["resourceVersion"] == follower.version == "1005"
    assert told.words == ["list 1005 p0,p1,p2,p3,p4"]


@pytest.mark.parametrize(
    "fault", [pytest.param(GONE, id="at start"), pytest.param(error_event(), id="in the stream")]
)
async def test_expired_watch_leads_to_one_list_that_shows_what_went_and_came(
    api: FakeApi, told: Told, fault: Fault
) -> None:
    """FIELD-REPORTS 21 a and b: others stopped quietly, looped, or went on from a dead version."""
    for name in ("stays", "goes"):
        api.store.create("pods", pod(name))
    api.next("watch", "pods", fault)
    held = Held()
    api.next("list", "pods", None, held)

    async with following(api, told) as follower:
        await held.arrived.wait()
        api.store.remove("pods", "default/goes")
        api.store.create("pods", pod("comes"))
        held.release.set()
        await api.until("watch", "pods", 2)
        api.store.create("pods", pod("later"))
        await told.until_told("ADDED later")

    assert told.names == {"stays", "comes", "later"}
    assert [each.query for each in api.requests("list", "pods")] == [{"limit": "500"}] * 2
    assert versions(api) == ["1002", "1004"]
    assert (follower.relists, follower.restarts) == (1, 1)


async def test_history_that_the_server_has_compacted_meanwhile_leads_to_one_list(
    api: FakeApi, told: Told
) -> None:
    held = Held()
    api.next("watch", "pods", held)

    async with following(api, told) as follower:
        await held.arrived.wait()
        api.store.create("pods", pod("missed"))
        api.store.forget("pods")
        held.release.set()
        await told.until_told("list 1001 missed")
        await api.until("watch", "pods", 2)

    assert follower.relists == 1


async def test_version_that_the_server_has_not_reached_leads_to_a_list(
    api: FakeApi, told: Told
) -> None:
    """The API went back, as after a restore: to wait for the version would be to wait for ever."""
    api.store.pass_version(2000)

    async with following(api, told) as follower:
        await api.until("watch", "pods", 1)
        api.store.version = 1500
        api.end_watches()
        await told.until_told("list 1500")

    assert follower.version == "1500"


async def test_watch_that_is_empty_again_and_again_is_asked_for_ever_more_rarely(
    api: FakeApi, told: Told
) -> None:
    """FIELD-REPORTS 21 c: others asked thousands of times a second."""
    api.always("watch", "pods", Lines())

    async with following(
        api, told, pause=timedelta(seconds=0.1), longest_pause=timedelta(seconds=0.3)
    ) as follower:
        seen = await api.until("watch", "pods", 5)
        api.always("watch", "pods", None)
        await api.until("watch", "pods", 6)
        api.store.create("pods", pod("heard"))
        await told.until_told("ADDED heard")

    # Four pauses of at least 0.1, 0.2, 0.3 and 0.3 s; of the first length only, 0.6 s at most.
    assert seen[4].at - seen[0].at > 0.7
    assert told.lists == 1
    assert follower.relists == 0


async def test_watch_that_ends_after_every_event_is_not_asked_for_without_pause(
    api: FakeApi, told: Told
) -> None:
    event = b'{"type":"MODIFIED","object":{"metadata":{"name":"p","uid":"u"}}}'
    api.always("watch", "pods", Lines((event,)))

    async with following(api, told, pause=timedelta(seconds=0.1), longest_pause=SECOND):
        seen = await api.until("watch", "pods", 4)

    assert seen[3].at - seen[0].at > 0.25


def test_a_reflector_asks_once_a_second_at_most_where_nothing_else_is_set() -> None:
    assert ReflectorSettings().pause == SECOND


@pytest.mark.parametrize("bookmark", [True, False])
async def test_next_watch_goes_on_from_list_or_bookmark_and_never_from_an_older_object(
    api: FakeApi, told: Told, bookmark: bool
) -> None:
    """FIELD-REPORTS 21 d: others went on from the newest object's version, long compacted."""
    api.store.create("pods", pod("quiet", uid="u1"))
    api.store.pass_version(1400)

    async with following(api, told) as follower:
        await api.until("watch", "pods", 1)
        api.store.pass_version(1500)
        if bookmark:
            api.bookmark("pods")
        api.end_watches()
        await api.until("watch", "pods", 2)

    assert versions(api) == ["1400", "1500" if bookmark else "1400"]
    assert told.words == ["list 1400 quiet"]  # a bookmark is no pod
    assert follower.version == versions(api)[1]


async def test_bookmark_that_ends_the_watch_moves_the_version(api: FakeApi, told: Told) -> None:
    api.bookmarks_every = 60

    async with following(api, told):
        await api.until("watch", "pods", 1)
        api.store.create("nodes", {"metadata": {"name": "other"}})
        api.bookmark("pods")
        api.store.create("pods", pod("next"))
        await told.until_told("ADDED next")
        api.end_watches()
        await api.until("watch", "pods", 2)

    assert versions(api) == ["1000", "1002"]


@pytest.mark.parametrize(
    ("known", "given", "kept"),
    [
        ("", "7", "7"),
        ("1000", "400", "1000"),
        ("999", "1000", "1000"),
        ("1000", "", "1000"),
        ("99", "100", "100"),
        ("abc", "abd", "abd"),
    ],
)
def test_newer_version_is_the_larger_number(known: str, given: str, kept: str) -> None:
    assert latest(known, given) == kept


@pytest.mark.parametrize("size", [300 << 10, 3 << 19])
async def test_object_of_any_size_is_one_event_like_the_others(
    api: FakeApi, told: Told, size: int
) -> None:
    """FIELD-REPORTS 22: aiohttp's line reader ends a watch at 64 KiB or so, again and again."""
    async with following(api, told) as follower:
        await api.until("watch", "pods", 1)
        api.store.create("pods", pod("big", padding=size))
        for name in ("next", "last"):
            api.store.create("pods", pod(name))
        await told.until_told("ADDED last")

    assert told.words[1:] == ["ADDED big", "ADDED next", "ADDED last"]
    assert (follower.relists, follower.restarts) == (0, 0)


async def test_events_in_small_pieces_are_whole_events(api: FakeApi, told: Told) -> None:
    api.next("watch", "pods", SlowChunks(size=3))

    async with following(api, told) as follower:
        await api.until("watch", "pods", 1)
        for name in ("a", "b"):
            api.store.create("pods", pod(name))
        await told.until_told("ADDED a", "ADDED b")

    assert follower.restarts == 0


async def test_watch_cut_in_the_middle_of_an_object_goes_on_from_the_one_before(
    api: FakeApi, told: Told
) -> None:
    event = {"type": "ADDED", "object": pod("before", uid="u", resourceVersion="1001")}
    whole = msgspec.json.encode(event)
    api.next("watch", "pods", Cut(whole + b"\n" + whole[:40]))
    api.store.pass_version(1001)

    async with following(api, told):
        await api.until("watch", "pods", 2)
        api.store.create("pods", pod("after"))
        await told.until_told("ADDED after")

    assert versions(api) == ["1001", "1001"]
    assert told.words == ["list 1001", "ADDED before", "ADDED after"]


async def test_line_that_is_no_event_ends_the_watch_and_the_next_goes_on(
    api: FakeApi, told: Told
) -> None:
    api.next("watch", "pods", Lines((b"<html>502 Bad Gateway</html>",)))

    async with following(api, told) as follower:
        await api.until("watch", "pods", 2)
        api.store.create("pods", pod("after"))
        await told.until_told("ADDED after")

    assert follower.relists == 0


async def test_silent_watch_is_given_up_soon_after_it_should_have_ended(
    api: FakeApi, told: Told
) -> None:
    """FIELD-REPORTS 23: a half-open connection hung without an error; pods bound meanwhile were
    not seen for minutes, or ever."""
    silence = Silence()
    api.next("watch", "pods", silence)
    api.store.create("pods", pod("p", uid="u1"))
    limits = ApiSettings(watch_slack=timedelta(seconds=0.2))

    async with following(api, told, settings=BRIEF_WATCH, limits=limits) as follower:
        await api.until("watch", "pods", 1)
        began = time.monotonic()
        api.store.update("pods", "default/p", lambda found: found["spec"].update(nodeName="n1"))
        ages = [follower.age_of_last_event]
        await asyncio.wait({asyncio.create_task(told.until_told("MODIFIED p"))}, timeout=0.5)
        ages.append(follower.age_of_last_event)
        await told.until_told("MODIFIED p")
        took = time.monotonic() - began

    assert told.pods["u1"].node == "n1"
    assert 1 < took < 30
    assert ages[1] - ages[0] >= 0.4  # rises meanwhile
    assert follower.age_of_last_event < took
    assert follower.relists == 0
    silence.over.set()


async def test_watch_that_falls_silent_after_a_bookmark_is_given_up_long_before_its_end(
    api: FakeApi, told: Told
) -> None:
    """FIELD-REPORTS 23: with the API side silent and TCP open, it took more than five minutes."""
    silence = Silence(lines=(BOOKMARK,))
    api.next("watch", "pods", silence)
    limits = ApiSettings(bookmark_silence=timedelta(seconds=0.3))

    async with following(api, told, limits=limits) as follower:
        await api.until("watch", "pods", 1)
        api.store.create("pods", pod("missed"))
        await told.until_told("ADDED missed")

    first, second = api.requests("watch", "pods")
    assert second.at - first.at >= 0.3
    assert versions(api) == ["1000", "1000"]
    assert follower.relists == 0
    silence.over.set()


class LateWord:
    """A bookmark just before the watch should end, then nothing, with TCP left open."""

    def __init__(self) -> None:
        self.over = asyncio.Event()

    async def answer(self, request: web.Request, go_on: GoOn) -> web.StreamResponse:  # noqa: ARG002
        response = await begin(request)
        await asyncio.sleep(0.95)
        await response.write(BOOKMARK + b"\n")
        await self.over.wait()
        return response


async def test_watch_that_falls_silent_late_is_given_up_when_it_should_have_ended(
    api: FakeApi, told: Told
) -> None:
    """The whole time of a watch was waited for once more, from its last word on."""
    late = LateWord()
    api.next("watch", "pods", late)
    limits = ApiSettings(watch_slack=timedelta(seconds=0.2))

    async with following(api, told, settings=BRIEF_WATCH, limits=limits):
        first, second = await api.until("watch", "pods", 2)

    assert 1.1 < second.at - first.at < 2.1
    late.over.set()


async def test_watch_whose_bookmarks_come_is_not_given_up(api: FakeApi, told: Told) -> None:
    api.bookmarks_every = 0.1
    limits = ApiSettings(bookmark_silence=timedelta(seconds=0.5))

    async with following(api, told, limits=limits) as follower:
        await api.until("watch", "pods", 1)
        nothing = asyncio.create_task(told.until_told("ADDED late"))
        await asyncio.wait({nothing}, timeout=1.2)
        api.store.create("pods", pod("late"))
        await nothing

    assert follower.restarts == 0


def test_two_bookmarks_may_not_come_before_a_watch_is_given_up() -> None:
    """kube-apiserver sends one about every minute."""
    limits = ApiSettings()

    assert timedelta(seconds=120) < limits.bookmark_silence
    assert limits.bookmark_silence < ReflectorSettings().watch_lasts + limits.watch_slack


async def test_quiet_watch_outlasts_the_time_that_a_request_may_take(
    api: FakeApi, told: Told
) -> None:
    """FIELD-REPORTS 23: the HTTP client's own total timeout ended quiet watches after minutes."""
    half = timedelta(seconds=0.5)
    limits = ApiSettings(request=half, page=half, bookmark_silence=half)  # no bookmark comes here

    async with following(api, told, limits=limits) as follower:
        await api.until("watch", "pods", 1)
        nothing = asyncio.create_task(told.until_told("ADDED late"))
        await asyncio.wait({nothing}, timeout=1.2)
        api.store.create("pods", pod("late"))
        await nothing

    assert follower.restarts == 0


async def test_quiet_watch_that_lasted_as_asked_proves_that_we_hear_the_server(
    api: FakeApi, told: Told
) -> None:
    async with following(api, told, settings=BRIEF_WATCH) as follower:
        await api.until("watch", "pods", 3)
        age = follower.age_of_last_event

    first, _, third = api.requests("watch", "pods")[:3]
    assert age < third.at - first.at
    assert told.lists == 1


async def test_version_of_a_page_that_expires_on_the_way_begins_the_list_again(
    api: FakeApi, told: Told
) -> None:
    for number in range(4):
        api.store.create("pods", pod(f"p{number}"))
    held = Held()
    api.next("list", "pods", None, held)

    async with following(api, told, page_size=3) as follower:
        await held.arrived.wait()
        api.store.remove("pods", "default/p0")
        api.store.forget("pods")
        held.release.set()
        await follower.synced.wait()

    queries = [sorted(each.query) for each in api.requests("list", "pods")]
    assert queries == [["limit"], ["continue", "limit"], ["limit"]]
    assert told.words == ["list 1005 p1,p2,p3"]
    assert follower.relists == 0


async def test_list_whose_pages_expire_every_time_is_asked_for_whole(
    api: FakeApi, told: Told
) -> None:
    for number in range(3):
        api.store.create("pods", pod(f"p{number}"))
    api.next("list", "pods", None, GONE, None, GONE)

    async with following(api, told, page_size=2) as follower:
        await follower.synced.wait()

    assert dict(api.requests("list", "pods")[-1].query) == {}
    assert told.words == ["list 1003 p0,p1,p2"]


async def test_pod_gone_and_made_again_under_its_name_in_the_gap_is_another_pod(
    api: FakeApi, told: Told
) -> None:
    api.store.create("pods", pod("web-0", uid="u-old", node="n1"))
    held = Held()
    api.next("watch", "pods", GONE)
    api.next("list", "pods", None, held)

    async with following(api, told):
        await held.arrived.wait()
        api.store.remove("pods", "default/web-0")
        api.store.create("pods", pod("web-0", uid="u-new"))
        held.release.set()
        await told.until(lambda: told.lists == 2 and "u-new" in told.pods)

    assert set(told.pods) == {"u-new"}


async def test_bad_objects_are_reported_and_stop_nobody(
    api: FakeApi, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    """FIELD-REPORTS 25."""
    broken_shape = {"metadata": {"name": "shape", "uid": "u1"}, "spec": {"nodeName": 7}}
    api.store.create("pods", broken_shape)
    api.store.create("pods", pod("amount", cpu="abc", uid="u2"))
    api.store.create("pods", pod("good"))

    with caplog.at_level(logging.WARNING):
        async with following(api, told) as follower:
            await api.until("watch", "pods", 1)
            api.store.create("pods", pod("again", cpu="abc", uid="u3"))
            api.store.create("pods", {**broken_shape, "metadata": {"name": "last", "uid": "u4"}})
            api.store.remove("pods", "default/amount")
            for number in range(10):
                api.store.create("pods", pod(f"p{number}"))
            await told.until_told("ADDED p9")

    assert told.words[:3] == ["bad shape", "bad amount", "list 1003 good"]
    assert told.words[3:6] == ["bad again", "bad last", "bad amount"]
    assert [(each.uid, each.action) for each in told.refused[2:]] == [
        ("u3", Action.ADDED),
        ("u4", Action.ADDED),
        ("u2", Action.DELETED),
    ]
    assert follower.bad_objects == 5
    assert follower.restarts == 0
    assert follower.version == "1016"
    assert "default/again: spec.containers[0].resources.requests.cpu" in caplog.text


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Refuse(500, "InternalError"), id="500"),
        pytest.param(Refuse(429, "TooManyRequests", retry_after=0), id="429"),
        pytest.param(Refuse(403, "Forbidden"), id="403"),
        pytest.param(Refuse(401, "Unauthorized"), id="401"),
        pytest.param(error_event(500, "InternalError"), id="500 in the stream"),
    ],
)
async def test_refused_watch_is_asked_for_again_from_where_it_was(
    api: FakeApi, told: Told, fault: Fault
) -> None:
    api.next("watch", "pods", fault, fault)

    async with following(api, told) as follower:
        await api.until("watch", "pods", 3)
        api.store.create("pods", pod("p"))
        await told.until_told("ADDED p")

    assert versions(api) == ["1000"] * 3
    assert follower.relists == 0


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Refuse(500, "InternalError"), id="500"),
        pytest.param(error_event(500, "InternalError"), id="500 in the stream"),
        pytest.param(bookmark_then_error(), id="500 after a bookmark"),
        pytest.param(Lines((b'{"type":"NEWS","object":{}}',)), id="a word that is no action"),
    ],
)
async def test_version_whose_watch_is_refused_again_and_again_is_given_up_for_a_list(
    api: FakeApi, told: Told, fault: Fault
) -> None:
    """It was asked for until the leader resigned, and the ConfigMap's for ever."""
    held = Held()
    api.next("watch", "pods", fault, fault, fault)
    api.next("list", "pods", None, held)

    async with following(api, told) as follower:
        await held.arrived.wait()
        api.store.create("pods", pod("missed"))
        held.release.set()
        await api.until("watch", "pods", 4)
        api.store.create("pods", pod("later"))
        await told.until_told("ADDED later")

    assert versions(api) == ["1000", "1000", "1000", "1001"]
    assert told.words == ["list 1000", "list 1001 missed", "ADDED later"]
    assert follower.relists == 1


@pytest.mark.parametrize("code", [429, 503, 504])
async def test_api_server_that_is_busy_is_not_asked_for_a_list_too(
    api: FakeApi, told: Told, code: int
) -> None:
    busy = Refuse(code, retry_after=0)
    api.next("watch", "pods", *[busy] * 5)

    async with following(api, told) as follower:
        await api.until("watch", "pods", 6)

    assert versions(api) == ["1000"] * 6
    assert follower.relists == 0


async def test_watch_that_is_refused_whatever_its_version_is_not_heard_for_all_its_lists(
    api: FakeApi, told: Told
) -> None:
    """Or a leader that may list and not watch would never give its lease up."""
    api.always("watch", "pods", Refuse(403, "Forbidden"))

    async with following(api, told) as follower:
        await api.until("watch", "pods", 1)
        first = api.requests("watch", "pods")[0].at
        await api.until("list", "pods", 4)
        age, now = follower.age_of_last_event, api.requests("list", "pods")[3].at

    # Three watches each, for a list is no refusal.
    assert len(api.requests("watch", "pods")) == 9
    assert age >= now - first


async def test_list_is_read_again_now_and_then_where_a_watch_leaves_changes_out(
    api: FakeApi, told: Told
) -> None:
    """An API server set back to an older state does so, for a version that it has yet to reach."""
    api.always("watch", "pods", Lines())

    async with following(api, told, list_every=timedelta(milliseconds=50)):
        await api.until("watch", "pods", 1)
        api.store.create("pods", pod("left-out"))
        await told.until_told("list 1001 left-out")
        await api.until("list", "pods", 5)

    begun = [each.at for each in api.requests("list", "pods")]
    assert all(later - earlier >= 0.05 for earlier, later in itertools.pairwise(begun))


async def test_retry_after_is_waited_for(api: FakeApi, told: Told) -> None:
    api.next("watch", "pods", Refuse(429, "TooManyRequests", retry_after=1))

    async with following(api, told):
        first, second = await api.until("watch", "pods", 2)

    assert second.at - first.at >= 1


async def test_refused_list_is_asked_for_until_it_comes(api: FakeApi, told: Told) -> None:
    api.store.create("pods", pod("p"))
    api.next("list", "pods", Refuse(503), Refuse(500), Cut(b'{"items":['))

    async with following(api, told) as follower:
        await follower.synced.wait()

    assert told.words == ["list 1001 p"]


async def test_kind_that_is_not_installed_has_no_objects_until_it_is(told: Told) -> None:
    async with (
        FakeApi(with_vms=False) as bare,
        following(
            bare,
            told,
            path=paths.VIRTUAL_MACHINES,
            may_be_absent=True,
            absent_for=timedelta(seconds=0.05),
        ) as follower,
    ):
        await follower.synced.wait()
        path = paths.VIRTUAL_MACHINES.removeprefix("/")
        await bare.until("get", path, 3)

    assert set(told.words) == {"list"}
    assert follower.version == ""


async def test_kind_that_must_be_there_is_never_taken_for_empty(api: FakeApi, told: Told) -> None:
    api.next("list", "pods", Refuse(404, "NotFound"))
    api.store.create("pods", pod("p"))

    async with following(api, told) as follower:
        await follower.synced.wait()

    assert told.words == ["list 1001 p"]


async def test_what_the_sink_refuses_ends_the_run_and_stands_in_the_next_list(
    api: FakeApi, told: Told
) -> None:
    told.trouble = [ValueError("not now")]

    async with following(api, told):
        await api.until("watch", "pods", 1)
        api.store.create("pods", pod("refused"))
        await told.until_told("list 1001 refused")
        api.store.create("pods", pod("next"))
        await told.until_told("ADDED next")

    assert told.words == ["list 1000", "list 1001 refused", "ADDED next"]


async def test_event_for_which_the_cluster_was_away_is_told_again_without_a_list(
    api: FakeApi, told: Told
) -> None:
    told.trouble = [ClusterUnavailable("no answer")]

    async with following(api, told):
        await api.until("watch", "pods", 1)
        api.store.create("pods", pod("p"))
        await told.until_told("ADDED p")

    assert told.words == ["list 1000", "ADDED p"]
    assert versions(api) == ["1000", "1000"]


async def test_server_that_goes_away_is_waited_for_and_nothing_is_missed(
    api: FakeApi, told: Told
) -> None:
    async with following(api, told) as follower:
        await api.until("watch", "pods", 1)
        async with api.away():
            api.store.create("pods", pod("meanwhile"))
            heard = asyncio.create_task(told.until_told("ADDED meanwhile"))
            await asyncio.wait({heard}, timeout=0.2)
            assert not heard.done()
        await heard

    assert versions(api)[-1] == "1000"
    assert follower.relists == 0


async def test_first_list_waits_for_a_server_that_is_not_there_yet(
    api: FakeApi, told: Told
) -> None:
    api.store.create("pods", pod("p"))

    async with AsyncExitStack() as stack:
        async with api.away():
            follower = await stack.enter_async_context(following(api, told))
            synced = asyncio.create_task(follower.synced.wait())
            await asyncio.wait({synced}, timeout=0.2)
            assert not synced.done()
        await synced

    assert told.words == ["list 1001 p"]
