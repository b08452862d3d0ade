"""The pump: the newest fact of each object, in order, again until the ledger has it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from autoscale_enforcer.cluster.kubernetes import pump as pumping
from autoscale_enforcer.cluster.kubernetes.pump import BATCH, FactPump, Put
from autoscale_enforcer.cluster.upkeep import LostLead
from autoscale_enforcer.errors import LedgerUnavailable, ScriptContractError
from autoscale_enforcer.ledger.calls import Leadership
from autoscale_enforcer.ledger.outcomes import Fact

LEADER = Leadership("t")


class Heard:
    """A ledger that notes what it is told, and meets the troubles that wait for it."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.troubles: list[Exception] = []
        self.most_at_once = self._now = 0
        self.meanwhile: Callable[[], None] = lambda: None

    def fact(self, word: str, answer: Fact = Fact.BOOKED) -> Put:
        async def put(leader: Leadership) -> Fact:
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
            await asyncio.sleep(0)
            self._now -= 1
            if self.troubles:
                raise self.troubles.pop()
            self.words.append(word)
            self.meanwhile()
            return answer

        return put


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def pump(monkeypatch: pytest.MonkeyPatch) -> FactPump:
    monkeypatch.setattr(pumping, "RETRY_AFTER", 0.001)
    return FactPump()


@pytest.fixture
async def running(pump: FactPump) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(pump.run(LEADER))
    yield task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_the_newest_fact_of_an_object_is_told(pump: FactPump, heard: Heard) -> None:
    for word in ("a1", "b1", "a2"):
        pump.put(word[0], heard.fact(word))

    await pump.flush(LEADER)

    assert (heard.words, len(pump)) == (["a2", "b1"], 0)


async def test_a_fact_that_comes_while_an_older_one_is_told_follows_it(
    pump: FactPump, heard: Heard
) -> None:
    def meanwhile() -> None:
        if heard.words[-1] == "a1":
            pump.put("a", heard.fact("a2"))

    heard.meanwhile = meanwhile
    pump.put("a", heard.fact("a1"))

    await pump.flush(LEADER)

    assert heard.words == ["a1", "a2"]


async def test_many_go_together_and_not_all_at_once(pump: FactPump, heard: Heard) -> None:
    for number in range(2 * BATCH + 1):
        pump.put(number, heard.fact(str(number)))

    await pump.flush(LEADER)

    assert heard.words == [str(number) for number in range(2 * BATCH + 1)]
    assert heard.most_at_once == BATCH


@pytest.mark.usefixtures("running")
async def test_facts_wait_while_the_ledger_is_away(pump: FactPump, heard: Heard) -> None:
    heard.troubles = [LedgerUnavailable("away") for _ in range(3)]

    for word in ("a1", "b1"):
        pump.put(word[0], heard.fact(word))
    pump.put("a", heard.fact("a2"))
    await pump.drained()

    assert sorted(heard.words) == ["a2", "b1"]
    assert heard.troubles == []


async def test_flush_says_what_has_not_been_told(pump: FactPump, heard: Heard) -> None:
    heard.troubles = [LedgerUnavailable("away")]
    pump.put("a", heard.fact("a1"))
    pump.put("b", heard.fact("b1"))

    with pytest.raises(LedgerUnavailable):
        await pump.flush(LEADER)

    assert (heard.words, len(pump)) == (["b1"], 1)


@pytest.mark.usefixtures("running")
async def test_a_fact_that_no_script_takes_keeps_no_other_out(
    pump: FactPump, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    """Field report 25: it was told again and again, and with it the pump died each time."""
    heard.troubles = [ScriptContractError("bad row")]

    for word in ("a", "b", "c"):
        pump.put(("pod", word), heard.fact(word))
    await pump.drained()

    assert (heard.words, pump.dropped) == (["b", "c"], 1)
    assert "('pod', 'a') is not booked: bad row" in caplog.text


async def test_another_leader_ends_it(
    pump: FactPump, heard: Heard, running: asyncio.Task[None]
) -> None:
    pump.put("a", heard.fact("a", Fact.FENCED))

    with pytest.raises(LostLead):
        await running


async def test_a_bug_ends_it(pump: FactPump, heard: Heard, running: asyncio.Task[None]) -> None:
    heard.troubles = [TypeError("a bug")]
    pump.put("a", heard.fact("a"))

    with pytest.raises(TypeError):
        await running


async def test_drained_waits_for_what_is_under_way(
    pump: FactPump, heard: Heard, running: asyncio.Task[None]
) -> None:
    pump.put("a", heard.fact("a"))

    await pump.drained()
    assert heard.words == ["a"]
    await pump.drained()  # nothing waits

    assert not running.done()


async def test_a_fact_that_may_wait_goes_with_the_next_that_may_not(
    pump: FactPump, heard: Heard, running: asyncio.Task[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pumping, "WAITS_FOR_OTHERS", 3600)
    pump.put("a", heard.fact("a"), may_wait=True)
    await asyncio.sleep(0.01)
    alone = list(heard.words)

    pump.put("b", heard.fact("b"))
    await pump.drained()

    assert (alone, heard.words) == ([], ["a", "b"])


async def test_facts_that_may_wait_go_together_in_a_moment(
    pump: FactPump, heard: Heard, running: asyncio.Task[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pumping, "WAITS_FOR_OTHERS", 0.5)
    for _ in range(2):
        heard.most_at_once = 0
        for word in ("a", "b", "c"):
            pump.put(word, heard.fact(word), may_wait=True)
            await asyncio.sleep(0.001)

        await pump.drained()

        assert heard.most_at_once == 3
