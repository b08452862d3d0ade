"""What goes to Redis when, how often, and what a caller is told of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from autoscale_enforcer.errors import LedgerUnavailable, ScriptContractError
from autoscale_enforcer.ledger.call import Call
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.ledger.outcomes import Permit, Reserve, ReserveAnswer
from autoscale_enforcer.ledger.pipeline import MAX_BATCH
from autoscale_enforcer.ledger.scripts import load_scripts
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.model.rows import said_row
from autoscale_enforcer.time_limit import TimeLimit
from tests.support.books import Books, pod, settings_at, vm
from tests.support.proxy import Proxy

N1 = NodeName("n1")
MINUTE = timedelta(minutes=1)
RESERVE = load_scripts()["reserve_pod"]
REQUEST = load_scripts()["request_permit"]


async def reserve(ledger: Ledger, uid: str, *, stamp: int = 10) -> ReserveAnswer:
    said = said_row(pod(uid, cpu=1, mem=1))
    return await ledger.reserve_pod(PodUid(uid), node=N1, said=said, stamp=stamp)


def uids(proxy: Proxy) -> list[str]:
    """The UIDs of the reserves that were sent, in order."""
    at = 3 + len(RESERVE.key_names) + RESERVE.arg_names.index("uid")
    return [command[at].decode() for command in proxy.sent(RESERVE.sha)]


# Coalescing


async def test_calls_that_come_together_share_a_round_trip(ledger: Ledger, proxy: Proxy) -> None:
    answers = await asyncio.gather(*(reserve(ledger, f"u{n}") for n in range(100)))

    assert {answer.outcome for answer in answers} == {Reserve.HELD}
    assert proxy.pipelines == 1


async def test_what_arrives_while_one_is_in_flight_goes_out_together(
    ledger: Ledger, proxy: Proxy
) -> None:
    proxy.replies_pass.clear()
    first = asyncio.create_task(reserve(ledger, "first"))
    await proxy.until_sent(RESERVE.sha)
    rest = [asyncio.create_task(reserve(ledger, f"u{n}")) for n in range(50)]
    for _ in range(10):
        await asyncio.sleep(0)
    while_in_flight = (proxy.pipelines, uids(proxy))
    proxy.replies_pass.set()
    await asyncio.gather(first, *rest)

    assert while_in_flight == (1, ["first"])
    assert proxy.pipelines == 2
    assert len(uids(proxy)) == 51


async def test_no_pipeline_holds_more_than_its_limit(ledger: Ledger, proxy: Proxy) -> None:
    await asyncio.gather(*(reserve(ledger, f"u{n}") for n in range(MAX_BATCH + 1)))

    assert proxy.pipelines == 2


async def test_guard_opens_each_pipeline(ledger: Ledger, proxy: Proxy) -> None:
    for number in range(3):
        await reserve(ledger, f"u{number}")

    assert [command[0] for command in proxy.commands] == [b"EVAL", b"EVALSHA", b"ROLE"] * 3


# Retries


async def test_lost_reply_is_asked_for_once_more_with_the_same_stamp(
    ledger: Ledger, proxy: Proxy, books: Books
) -> None:
    proxy.lose_replies()

    answer = await reserve(ledger, "u1", stamp=10)

    first, second = proxy.sent(RESERVE.sha)
    assert answer.outcome is Reserve.HELD
    assert first == second
    assert await books.reserved() == (1, 1)


async def test_refused_request_is_sent_once_more(ledger: Ledger, proxy: Proxy) -> None:
    proxy.refuse_requests()

    answer = await reserve(ledger, "u1")

    assert answer.outcome is Reserve.HELD
    assert len(proxy.sent(RESERVE.sha)) == 2


@pytest.mark.parametrize("lost", ["replies", "requests"])
async def test_nothing_is_sent_a_third_time(ledger: Ledger, proxy: Proxy, lost: str) -> None:
    """A client in its default settings ran one script eleven times."""
    if lost == "replies":
        proxy.lose_replies(2)
    else:
        proxy.refuse_requests(2)

    with pytest.raises(LedgerUnavailable):
        await reserve(ledger, "u1")

    assert len(proxy.sent(RESERVE.sha)) == 2
    assert (await reserve(ledger, "u2")).outcome is Reserve.HELD


async def test_retry_goes_before_anything_newer(ledger: Ledger, proxy: Proxy) -> None:
    """A first send that was run late undid a grant made since."""
    proxy.lose_replies()
    proxy.replies_pass.clear()
    older = asyncio.create_task(reserve(ledger, "older"))
    await proxy.until_sent(RESERVE.sha)
    newer = asyncio.create_task(reserve(ledger, "newer"))
    await asyncio.sleep(0)
    proxy.replies_pass.set()
    await asyncio.gather(older, newer)

    assert uids(proxy) == ["older", "older", "newer"]


async def test_refusal_is_not_told_while_a_lost_send_may_still_grant(
    ledger: Ledger, proxy: Proxy, books: Books
) -> None:
    """What was sent over a lost connection may be carried out after the retry was refused."""
    await books.put_node("n1", 1, 1, rv="2")
    await reserve(ledger, "other", stamp=5)
    proxy.detain_requests()

    with pytest.raises(LedgerUnavailable, match="ask again"):
        await reserve(ledger, "u1", stamp=10)

    await ledger.unreserve_pod(PodUid("other"), node=N1, stamp=20)
    proxy.late_pass.set()
    await proxy.late_came.wait()
    assert await books.reserved() == (1, 1)


async def test_refusal_is_told_where_nothing_was_lost(
    ledger: Ledger, proxy: Proxy, books: Books
) -> None:
    await books.put_node("n1", 1, 1, rv="2")
    await reserve(ledger, "other", stamp=5)

    assert (await reserve(ledger, "u1", stamp=10)).outcome is Reserve.NO_ROOM


async def test_server_that_gives_no_answer_is_given_up_in_time(books: Books, proxy: Proxy) -> None:
    """By the socket, and by it alone: the call has a minute."""
    settings = settings_at(proxy.url)
    connection = replace(settings.connection, socket_timeout=0.3)
    ledger = Ledger.open(replace(settings, connection=connection, call_budget=MINUTE))
    proxy.requests_pass.clear()
    began = time.monotonic()

    with pytest.raises(LedgerUnavailable):
        await reserve(ledger, "u1")

    assert time.monotonic() - began < MINUTE.total_seconds() / 2
    proxy.requests_pass.set()
    await ledger.close()


@pytest.mark.parametrize("when", ["before", "between"])
async def test_scripts_that_were_flushed_are_loaded_again(
    ledger: Ledger, books: Books, proxy: Proxy, when: str
) -> None:
    if when == "between":
        await reserve(ledger, "u0")
    await books.raw.script_flush()

    answers = await asyncio.gather(reserve(ledger, "u1"), reserve(ledger, "u2"))

    assert {answer.outcome for answer in answers} == {Reserve.HELD}


# Budgets, and callers that go away


@contextmanager
def hasty(ledger: Ledger, seconds: float) -> Iterator[None]:
    """What is asked now has a budget that runs out long before the socket's does."""
    usual = ledger.pipeline._budget
    ledger.pipeline._budget = TimeLimit(timedelta(seconds=seconds))
    yield
    ledger.pipeline._budget = usual


async def test_call_given_up_before_it_was_sent_never_is(
    ledger: Ledger, proxy: Proxy, books: Books
) -> None:
    proxy.replies_pass.clear()
    with hasty(ledger, 2):
        first = asyncio.create_task(reserve(ledger, "first"))
        await proxy.until_sent(RESERVE.sha)
    with hasty(ledger, 0.1), pytest.raises(LedgerUnavailable):
        await reserve(ledger, "unsent")
    with pytest.raises(LedgerUnavailable):
        await first
    proxy.replies_pass.set()
    await reserve(ledger, "next")

    assert "unsent" not in uids(proxy)
    assert await books.pod("unsent") is None


async def test_caller_that_goes_away_leaves_nothing_half_done(
    ledger: Ledger, proxy: Proxy, books: Books
) -> None:
    proxy.replies_pass.clear()
    waiting = asyncio.create_task(reserve(ledger, "u1"))
    await proxy.until_sent(RESERVE.sha)
    waiting.cancel()
    proxy.replies_pass.set()

    answer = await reserve(ledger, "u2")

    assert answer.outcome is Reserve.HELD
    assert await books.reserved() == (2, 2)


async def test_answers_are_never_mixed_up_when_callers_hang_up(
    ledger: Ledger, proxy: Proxy, books: Books
) -> None:
    """Field report 26: a cancelled call left its reply behind for the next caller."""
    proxy.delay = 0.1
    for number in range(50):
        await books.put_pod(pod(f"v{number}", node="n1", vm=vm(number + 1, number + 1)))

    async def ask(number: int) -> tuple[int, int, Permit]:
        asked = Resources(number + 1, number + 1)
        answer = await ledger.request_permit(
            PodName(f"default/v{number}"),
            asked=asked,
            factor=Resources(1, 1),
            last_permit=None,
            stamp=await ledger.stamp(),
        )
        return answer.amount.cpu, answer.amount.mem, answer.outcome

    leaving = [asyncio.create_task(reserve(ledger, f"u{n}")) for n in range(50)]
    asking = [asyncio.create_task(ask(number)) for number in range(50)]
    await proxy.until_sent(REQUEST.sha)
    for task in leaving:
        task.cancel()
    answers = await asyncio.gather(*asking)
    afterwards = [await ask(number) for number in range(3)]

    assert answers == [(n + 1, n + 1, Permit.PERMIT) for n in range(50)]
    assert afterwards == answers[:3]


async def test_closing_ends_what_is_waiting(ledger: Ledger, proxy: Proxy) -> None:
    proxy.replies_pass.clear()
    sent = asyncio.create_task(reserve(ledger, "sent"))
    await proxy.until_sent(RESERVE.sha)
    queued = asyncio.create_task(reserve(ledger, "queued"))
    await asyncio.sleep(0)
    began = time.monotonic()

    await ledger.close()
    errors = await asyncio.gather(sent, queued, return_exceptions=True)

    assert [type(error) for error in errors] == [LedgerUnavailable, LedgerUnavailable]
    assert time.monotonic() - began < 10  # half of what the socket would wait
    proxy.replies_pass.set()


# Stamps


async def test_stamps_rise_and_are_never_later_than_redis(ledger: Ledger, books: Books) -> None:
    stamps = []
    for _ in range(1000):
        stamps.append(await ledger.stamp())
        await asyncio.sleep(0)
    seconds, micros = await books.raw.time()

    assert stamps == sorted(set(stamps))
    assert stamps[-1] <= seconds * 1_000_000 + micros


async def test_stamp_goes_on_while_redis_is_away(ledger: Ledger, proxy: Proxy) -> None:
    proxy.refuse_requests(100)
    before = await ledger.stamp()
    with pytest.raises(LedgerUnavailable):
        await reserve(ledger, "u1")

    assert await ledger.stamp() > before
    proxy.refuse_requests(0)


# Epochs


async def test_call_refused_for_its_epoch_is_decided_anew(
    ledger: Ledger, proxy: Proxy, books: Books
) -> None:
    await books.raw.hset(books.keys.key("meta"), "epoch", "epoch2")

    answers = await asyncio.gather(reserve(ledger, "u1"), reserve(ledger, "u2"))

    assert [answer.outcome for answer in answers] == [Reserve.HELD, Reserve.HELD]
    assert proxy.pipelines == 2
    assert ledger.pipeline.guard is not None
    assert ledger.pipeline.guard.epoch == "epoch2"


async def test_replication_id_that_changed_makes_the_books_suspect_first(
    ledger: Ledger, books: Books
) -> None:
    """What is behind the guard in that very pipeline must not be granted."""
    await books.raw.hset(books.keys.key("meta"), "replid", "another")

    answer = await reserve(ledger, "u1")

    assert answer.outcome is Reserve.UNSETTLED
    assert await books.pod("u1") is None


async def test_ledger_that_keeps_beginning_epochs_is_unavailable(
    ledger: Ledger, books: Books
) -> None:
    call = Call(RESERVE, lambda _: {**ARGUMENTS, "epoch": "never"})

    with pytest.raises(LedgerUnavailable, match="new epochs"):
        await ledger.pipeline.run(call)


async def test_nothing_is_decided_without_books(ledger: Ledger, books: Books) -> None:
    await books.raw.hdel(books.keys.key("meta"), "epoch")

    with pytest.raises(LedgerUnavailable, match="not built"):
        await reserve(ledger, "u1")

    assert await books.pod("u1") is None
    assert (await ledger.look()).state == "UNBUILT"


async def test_ledger_is_back_as_soon_as_redis_is(books: Books, proxy: Proxy) -> None:
    proxy.refuse_requests(4)
    ledger = Ledger.open(settings_at(proxy.url))
    with pytest.raises(LedgerUnavailable):
        await ledger.stamp()
    with pytest.raises(LedgerUnavailable):
        await ledger.mirror.refresh()

    await ledger.mirror.refresh()

    assert ledger.mirror.nodes.keys() == {"n1"}
    await ledger.close()


# Mirror


async def test_refreshes_that_come_together_share_one_read(ledger: Ledger, proxy: Proxy) -> None:
    await asyncio.gather(*(ledger.mirror.refresh() for _ in range(50)))

    assert len(proxy.sent(load_scripts()["read_changes"].sha)) == 1


async def test_refresh_sees_a_hold_made_at_another_replica(ledger: Ledger, books: Books) -> None:
    await ledger.mirror.refresh()
    await books.reserve(pod("u1"))

    await ledger.mirror.refresh()

    assert ledger.mirror.nodes[N1].reserved == Resources(1000, 100)


async def test_refresh_that_was_given_up_unsent_does_not_end_all_others(
    ledger: Ledger, proxy: Proxy
) -> None:
    """The ended call was waited for again and again, each time with its old error."""
    proxy.replies_pass.clear()
    first = asyncio.create_task(reserve(ledger, "first"))
    await proxy.until_sent(RESERVE.sha)
    with hasty(ledger, 0.1), pytest.raises(LedgerUnavailable):
        await ledger.mirror.refresh()
    proxy.replies_pass.set()
    await first

    await ledger.mirror.refresh()

    assert ledger.mirror.nodes.keys() == {"n1"}


async def test_refresh_starts_over_in_another_epoch(ledger: Ledger, books: Books) -> None:
    await ledger.mirror.refresh()
    building = await books.ledger.begin_build(books.leader)
    assert building is not None
    await books.put_node("n2", leader=building)
    await books.ledger.publish_build(building)

    await ledger.mirror.refresh()

    assert ledger.mirror.nodes.keys() == {"n2"}


# Bugs of ours


async def test_arguments_that_the_header_does_not_name_are_a_bug(ledger: Ledger) -> None:
    call = Call(RESERVE, lambda _: {"epoch": "e"})

    with pytest.raises(ScriptContractError, match="do not match the header"):
        await ledger.pipeline.run(call)

    assert (await reserve(ledger, "u1")).outcome is Reserve.HELD


async def test_error_inside_a_script_is_a_bug(ledger: Ledger, books: Books) -> None:
    await books.raw.hset(books.keys.key("pods"), "u1", "no row")
    await books.raw.hincrby(books.keys.key("meta"), "pods", 1)

    with pytest.raises(ScriptContractError, match="reserve_pod"):
        await reserve(ledger, "u1")


ARGUMENTS: dict[str, str | int | bytes] = {
    "stamp": 1,
    "uid": "u1",
    "node": "n1",
    "said": "",
    "to": "held",
    "hold_ms": 1,
    "most": 1,
    "context": b"",
}
