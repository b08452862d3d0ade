from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from autoscale_enforcer.ledger.outcomes import Confirm, Fact, Release, Reserve, ReserveAnswer
from autoscale_enforcer.model.ids import NodeName, PodUid
from autoscale_enforcer.model.resources import MAX_MEM_BYTES, Resources
from tests.support.books import EPOCH, Books, lines, pod, vm


def got(outcome: Reserve, cpu: int = 1000, mem: int = 100, *, rv: str = "1") -> ReserveAnswer:
    return ReserveAnswer(outcome=outcome, amount=Resources(cpu, mem), resource_version=rv)


def no_room(short: str) -> ReserveAnswer:
    return ReserveAnswer(outcome=Reserve.NO_ROOM, short=short)


# A pod that holds nothing yet


async def test_reserve_pod_holds_room_for_an_unknown_pod(books: Books) -> None:
    await books.put_node("n1")
    before = await books.dump()

    answer = await books.reserve(pod("u1"), stamp=10)

    assert answer == got(Reserve.HELD)
    assert await books.changes(before) == lines("""
        nodes n1 sums=1000/100 pods=1 version=2
        pods u1 name=default/u1 node=n1 stage=held rv=1 holds=1000/100 deadline=+30min stamp=10
        names default/u1 u1
        changes n1 2
        deadlines u1 +30min
        meta pods 1
        meta version 2
        journal reserve u1 -->n1 |held 1000 100 1000 100 1000 100 0 0 @ 1000 100 4000 800
    """)


async def test_reserve_pod_goes_by_what_the_ledger_knows_of_a_pending_pod(books: Books) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("u1", rv="7", cpu=500, mem=50))
    before = await books.dump()

    answer = await books.reserve("u1", stamp=10)

    assert answer == got(Reserve.HELD, 500, 50, rv="7")
    assert await books.changes(before) == lines("""
        nodes n1 sums=500/50 pods=1 version=2
        pods u1 node=n1 stage=held deadline=+30min stamp=10
        changes n1 2
        deadlines u1 +30min
        meta version 2
        journal reserve u1 -->n1 pending 500 50 500 50 500 50 0 0|held 500 50 500 50 500 50 0 0 @
          500 50 4000 800
    """)


async def test_reserve_pod_begins_a_bind_of_an_unknown_pod(books: Books) -> None:
    await books.put_node("n1")
    before = await books.dump()

    answer = await books.begin_bind(pod("u1"), stamp=10)

    assert answer == got(Reserve.BINDING)
    assert await books.changes(before) == lines("""
        nodes n1 sums=1000/100 pods=1 version=2
        pods u1 name=default/u1 node=n1 stage=binding rv=1 holds=1000/100 deadline=+30min stamp=10
        names default/u1 u1
        changes n1 2
        deadlines u1 +30min
        meta pods 1
        meta version 2
        journal begin_bind u1 -->n1 |binding 1000 100 1000 100 1000 100 0 0 @ 1000 100 4000 800
    """)


async def test_reserve_pod_notes_who_asked_in_the_journal(books: Books) -> None:
    await books.put_node("n1")
    before = await books.dump()

    await books.reserve(pod("u1"), context={"caller": "scheduler"})

    assert "@ 1000 100 4000 800 {'caller': 'scheduler'}" in await books.changes(before)


@pytest.mark.parametrize(
    ("cpu", "mem", "short"),
    [(4001, 800, "cpu"), (4000, 801, "mem"), (4001, 801, "cpu_mem")],
)
async def test_reserve_pod_refuses_what_does_not_fit(
    books: Books, cpu: int, mem: int, short: str
) -> None:
    await books.put_node("n1", 4000, 800)
    before = await books.dump()

    answer = await books.reserve(pod("u1", cpu=cpu, mem=mem))

    assert answer == no_room(short)
    assert await books.dump() == before


async def test_reserve_pod_fills_a_node_to_the_last_unit(books: Books) -> None:
    await books.put_node("n1", 4000, 800)
    await books.reserve(pod("u1", cpu=3999, mem=799))

    answer = await books.reserve(pod("u2", cpu=1, mem=1))

    assert answer == got(Reserve.HELD, 1, 1)
    assert await books.reserved() == (4000, 800)


async def test_reserve_pod_does_not_judge_a_resource_of_which_nothing_is_asked(
    books: Books,
) -> None:
    await books.put_node("n1", 4000, 800)
    await books.put_pod(pod("full", node="n1", cpu=0, mem=900))

    answer = await books.reserve(pod("u1", cpu=4000, mem=0))

    assert answer == got(Reserve.HELD, 4000, 0)


async def test_reserve_pod_refuses_an_unknown_node(books: Books) -> None:
    before = await books.dump()

    answer = await books.reserve(pod("u1"))

    assert answer == ReserveAnswer(outcome=Reserve.NO_NODE)
    assert await books.dump() == before


async def test_reserve_pod_refuses_a_node_that_has_left(books: Books) -> None:
    await books.put_pod(pod("u0", node="n1", cpu=0, mem=0))
    before = await books.dump()

    answer = await books.reserve(pod("u1", cpu=0, mem=0))

    assert answer == ReserveAnswer(outcome=Reserve.NO_NODE)
    assert await books.dump() == before


async def test_reserve_pod_knows_nothing_of_a_pod_that_nobody_described(books: Books) -> None:
    await books.put_node("n1")
    before = await books.dump()

    answer = await books.reserve("u1")

    assert answer == ReserveAnswer(outcome=Reserve.UNKNOWN)
    assert await books.dump() == before


async def test_reserve_pod_refuses_a_vm_that_cannot_be_read(books: Books) -> None:
    await books.put_node("n1")
    before = await books.dump()

    answer = await books.reserve(pod("u1", problem="metadata.annotations: no JSON"))

    assert answer == ReserveAnswer(outcome=Reserve.UNREADABLE)
    assert await books.dump() == before


async def test_reserve_pod_holds_nothing_in_an_ignored_namespace(books: Books) -> None:
    await books.put_node("n1")
    before = await books.dump()

    answer = await books.reserve(pod("u1"), ignored=True)

    assert answer == ReserveAnswer(outcome=Reserve.IGNORED)
    assert await books.dump() == before


# A pod that is held here or elsewhere


async def test_reserve_pod_again_renews_the_deadline_only(books: Books) -> None:
    await books.put_node("n1")
    await books.reserve(pod("u1"), stamp=10)
    books.ledger.settings = replace(books.ledger.settings, hold_lifetime=timedelta(hours=1))
    before = await books.dump()

    answer = await books.reserve(pod("u1"), stamp=10)

    assert answer == got(Reserve.HELD)
    assert await books.changes(before) == lines("""
        pods u1 deadline=+60min
        deadlines u1 +60min
    """)


async def test_reserve_pod_judges_the_difference_of_a_hold_that_grows(books: Books) -> None:
    await books.put_node("n1", 4000, 800)
    await books.reserve(pod("u1", rv="1", cpu=3000), stamp=10)

    too_much = await books.reserve(pod("u1", rv="2", cpu=4001), stamp=20)
    all_there_is = await books.reserve(pod("u1", rv="2", cpu=4000), stamp=30)

    assert too_much == no_room("cpu")
    assert all_there_is == got(Reserve.HELD, 4000, rv="2")
    assert await books.reserved() == (4000, 100)


async def test_reserve_pod_lets_a_hold_shrink_on_a_node_over_capacity(books: Books) -> None:
    await books.put_node("n1", 4000, 800, rv="1")
    await books.reserve(pod("u1", rv="1", cpu=3000), stamp=10)
    await books.put_node("n1", 500, 50, rv="2")
    before = await books.dump()

    answer = await books.reserve(pod("u1", rv="2", cpu=2000), stamp=20)

    assert answer == got(Reserve.HELD, 2000, rv="2")
    assert await books.changes(before) == lines("""
        nodes n1 sums=2000/100 version=4
        pods u1 rv=2 holds=2000/100 stamp=20
        changes n1 4
        meta version 4
        journal reserve u1 n1->n1 held 3000 100 3000 100 3000 100 0 0|held 2000 100 2000 100 2000
          100 0 0 @ 2000 100 500 50
    """)


async def test_reserve_pod_goes_by_the_newer_version_of_the_pod(books: Books) -> None:
    await books.put_node("n1")
    await books.reserve(pod("u1", rv="10", cpu=2000), stamp=10)

    answer = await books.reserve(pod("u1", rv="9", cpu=500), stamp=20)

    assert answer == got(Reserve.HELD, 2000, rv="10")
    assert await books.reserved() == (2000, 100)


async def test_reserve_pod_moves_a_hold_in_one_step(books: Books) -> None:
    await books.put_node("n1")
    await books.put_node("n2")
    await books.reserve(pod("u1"), "n1", stamp=10)
    before = await books.dump()

    answer = await books.reserve(pod("u1"), "n2", stamp=20)

    assert answer == got(Reserve.HELD)
    assert await books.changes(before) == lines("""
        nodes n1 sums=0/0 pods=0 version=5
        nodes n2 sums=1000/100 pods=1 version=4
        pods u1 node=n2 stamp=20
        changes n1 5
        changes n2 4
        meta version 5
        journal reserve u1 n1->n2 held 1000 100 1000 100 1000 100 0 0|held 1000 100 1000 100 1000
          100 0 0 @ 1000 100 4000 800
    """)


async def test_reserve_pod_leaves_a_hold_that_cannot_move(books: Books) -> None:
    await books.put_node("n1")
    await books.put_node("n2", 999, 800)
    await books.reserve(pod("u1"), "n1", stamp=10)
    before = await books.dump()

    answer = await books.reserve(pod("u1"), "n2", stamp=20)

    assert answer == no_room("cpu")
    assert await books.dump() == before


async def test_reserve_pod_refuses_what_was_asked_before_the_newest_change(books: Books) -> None:
    """A first send whose socket had been given up ran seconds later and undid what came since."""
    await books.put_node("n1")
    await books.put_node("n2")
    await books.reserve(pod("u1"), "n2", stamp=20)
    before = await books.dump()

    answer = await books.reserve(pod("u1"), "n1", stamp=19)

    assert answer == ReserveAnswer(outcome=Reserve.LATE)
    assert await books.dump() == before


@pytest.mark.parametrize("stamp", [19, 20])
async def test_reserve_pod_refuses_a_call_no_newer_than_the_release(
    books: Books, stamp: int
) -> None:
    """Equal: the very call whose hold was given up, sent once more and come late."""
    await books.put_node("n1")
    await books.reserve(pod("u1"), stamp=10)
    await books.unreserve("u1", stamp=20)
    before = await books.dump()

    answer = await books.reserve(pod("u1"), stamp=stamp)

    assert answer == ReserveAnswer(outcome=Reserve.LATE)
    assert await books.dump() == before


# Begin bind


async def test_reserve_pod_begins_a_bind_of_a_held_pod(books: Books) -> None:
    await books.put_node("n1")
    await books.reserve(pod("u1"), stamp=10)
    before = await books.dump()

    answer = await books.begin_bind(pod("u1"), stamp=20)

    assert answer == got(Reserve.BINDING)
    assert await books.changes(before) == lines("""
        pods u1 stage=binding stamp=20
        journal begin_bind u1 n1->n1 held 1000 100 1000 100 1000 100 0 0|binding 1000 100 1000
          100 1000 100 0 0 @ 1000 100 4000 800
    """)


async def test_reserve_pod_lets_a_newer_call_take_a_bind_over(books: Books) -> None:
    await books.put_node("n1")
    await books.begin_bind(pod("u1"), stamp=10)
    before = await books.dump()

    taken_over = await books.begin_bind(pod("u1"), stamp=20)
    of_the_first = await books.abandon("u1", stamp=10)

    assert taken_over == got(Reserve.BINDING)
    assert of_the_first is Release.LATE
    assert await books.changes(before) == "pods u1 stamp=20"


async def test_reserve_pod_does_not_let_an_older_call_take_a_bind_over(books: Books) -> None:
    await books.put_node("n1")
    await books.begin_bind(pod("u1"), stamp=20)
    before = await books.dump()

    answer = await books.begin_bind(pod("u1"), stamp=10)

    assert answer == ReserveAnswer(outcome=Reserve.LATE)
    assert await books.dump() == before


async def test_reserve_pod_tells_of_a_bind_under_way_here(books: Books) -> None:
    await books.put_node("n1")
    await books.begin_bind(pod("u1"), stamp=10)
    before = await books.dump()

    answer = await books.reserve(pod("u1"), stamp=20)

    assert answer == got(Reserve.BINDING)
    assert await books.dump() == before


@pytest.mark.parametrize("begin", [False, True], ids=["reserve", "begin_bind"])
async def test_reserve_pod_waits_for_a_bind_under_way_elsewhere(books: Books, begin: bool) -> None:
    await books.put_node("n1")
    await books.put_node("n2")
    await books.begin_bind(pod("u1"), "n1", stamp=10)
    before = await books.dump()

    answer = await books.reserve(pod("u1"), "n2", stamp=20, to="binding" if begin else "held")

    assert answer == ReserveAnswer(outcome=Reserve.BUSY, node=NodeName("n1"))
    assert await books.dump() == before


@pytest.mark.parametrize("begin", [False, True], ids=["reserve", "begin_bind"])
async def test_reserve_pod_has_nothing_to_do_for_a_pod_bound_here(
    books: Books, begin: bool
) -> None:
    """A permit may have grown since: what the VM holds is told, not what the pod says."""
    await books.put_node("n1")
    await books.put_pod(pod("v1", node="n1", vm=vm(1000, 100)))
    await books.request("v1", 2000, 200, stamp=10)
    before = await books.dump()

    answer = await books.reserve(
        pod("v1", vm=vm(1000, 100)), stamp=5, to="binding" if begin else "held"
    )

    assert answer == got(Reserve.BOUND, 2000, 200)
    assert await books.dump() == before


@pytest.mark.parametrize("begin", [False, True], ids=["reserve", "begin_bind"])
async def test_reserve_pod_refuses_a_pod_bound_elsewhere(books: Books, begin: bool) -> None:
    await books.put_node("n2")
    await books.put_pod(pod("u1", node="n1"))
    before = await books.dump()

    answer = await books.reserve(pod("u1"), "n2", stamp=20, to="binding" if begin else "held")

    assert answer == ReserveAnswer(outcome=Reserve.CONFLICT, node=NodeName("n1"))
    assert await books.dump() == before


# Gone, and names used again


async def test_reserve_pod_refuses_a_pod_that_is_gone(books: Books) -> None:
    await books.put_node("n1")
    await books.delete_pod("u1")
    before = await books.dump()

    answer = await books.reserve(pod("u1"))

    assert answer == ReserveAnswer(outcome=Reserve.GONE)
    assert await books.dump() == before


async def test_reserve_pod_replaces_a_held_pod_of_its_name(books: Books) -> None:
    """The newcomer is judged as if the older one were not there: the node is full with it."""
    await books.put_node("n1", 1000, 100)
    await books.reserve(pod("old", name="web", rv="1"), stamp=10)
    before = await books.dump()

    answer = await books.reserve(pod("new", name="web", rv="2"), stamp=20)

    assert answer == got(Reserve.HELD, rv="2")
    assert await books.changes(before) == lines("""
        pods new name=default/web node=n1 stage=held rv=2 holds=1000/100 deadline=+30min stamp=20
        pods old gone
        names default/web new
        deadlines new +30min
        deadlines old gone
        gone old now
        journal replace old n1->- held 1000 100 1000 100 1000 100 0 0|
        journal reserve new -->n1 |held 1000 100 1000 100 1000 100 0 0 @ 1000 100 1000 100
    """)


async def test_reserve_pod_leaves_a_held_pod_of_its_name_when_it_does_not_fit(
    books: Books,
) -> None:
    await books.put_node("n1", 1000, 100)
    await books.reserve(pod("old", name="web", rv="1"), stamp=10)
    before = await books.dump()

    answer = await books.reserve(pod("new", name="web", rv="2", cpu=1001), stamp=20)

    assert answer == no_room("cpu")
    assert await books.dump() == before


@pytest.mark.parametrize("confirmed", [False, True], ids=["binding", "bound"])
async def test_reserve_pod_leaves_a_name_that_is_binding_or_bound(
    books: Books, confirmed: bool
) -> None:
    await books.put_node("n1")
    await books.begin_bind(pod("old", name="web", rv="1"), stamp=10)
    if confirmed:
        await books.confirm("old")
    before = await books.dump()

    answer = await books.reserve(pod("new", name="web", rv="2"), stamp=20)

    assert answer == ReserveAnswer(outcome=Reserve.NAME_TAKEN, uid=PodUid("old"))
    assert await books.dump() == before


async def test_reserve_pod_refuses_a_pod_older_than_that_of_its_name(books: Books) -> None:
    await books.put_node("n1")
    await books.reserve(pod("new", name="web", rv="10"), stamp=10)
    before = await books.dump()

    answer = await books.reserve(pod("old", name="web", rv="9"), stamp=20)

    assert answer == ReserveAnswer(outcome=Reserve.GONE)
    assert await books.dump() == before


# Epochs and loss


async def test_reserve_pod_holds_nothing_new_on_suspect_books(books: Books) -> None:
    await books.put_node("n1")
    await books.new_epoch(state="suspect")
    before = await books.dump()

    answer = await books.reserve(pod("u1"))

    assert answer == ReserveAnswer(outcome=Reserve.UNSETTLED)
    assert await books.dump() == before


async def test_reserve_pod_waits_for_the_agents_of_a_node(books: Books) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("v1", node="n1", vm=vm(1000, 100)))
    await books.settles_at(+3600)
    before = await books.dump()

    while_waiting = await books.reserve(pod("u1"))
    unchanged = await books.dump() == before
    await books.request("v1", 1000, 100)
    when_heard = await books.reserve(pod("u1"))

    assert while_waiting == ReserveAnswer(outcome=Reserve.UNSETTLED)
    assert unchanged
    assert when_heard == got(Reserve.HELD)


async def test_reserve_pod_does_not_wait_for_agents_for_ever(books: Books) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("v1", node="n1", vm=vm(1000, 100)))
    await books.settles_at(-1)

    answer = await books.reserve(pod("u1"))

    assert answer == got(Reserve.HELD)


async def test_reserve_pod_renews_a_hold_on_suspect_books(books: Books) -> None:
    await books.put_node("n1")
    await books.reserve(pod("u1"), stamp=10)
    await books.new_epoch(state="suspect")
    before = await books.dump()

    answer = await books.reserve(pod("u1"), stamp=20)

    assert answer == got(Reserve.HELD)
    assert await books.changes(before) == "pods u1 stamp=20"


async def test_reserve_pod_counts_a_vm_that_we_place_as_heard(books: Books) -> None:
    """No grant of it can have been lost: it had none before this epoch."""
    await books.put_node("n1")
    await books.settles_at(+3600)
    await books.begin_bind(pod("v1", vm=vm(1000, 100)))
    before = await books.dump()

    answer = await books.confirm("v1")

    assert answer is Confirm.BOUND
    assert "nodes n1 vms=1 heard=1 version=3" in await books.changes(before)


async def test_reserve_pod_forgets_what_was_heard_in_an_older_epoch(books: Books) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("v1", node="n1", vm=vm(1000, 100)))
    await books.request("v1", 1000, 100)
    heard = (await books.node()).heard
    await books.new_epoch("epoch2")

    await books.reserve(pod("u1"))

    row = await books.node()
    assert (heard, row.vms, row.heard, row.epoch) == (1, 1, 0, "epoch2")


# Numbers


async def test_reserve_pod_rounds_the_discounted_charge_down(books: Books) -> None:
    await books.put_node("n1", 667, 66)
    before = await books.dump()

    answer = await books.reserve(pod("v1", vm=vm(1001, 100, over=(1500, 1500))))

    assert answer == got(Reserve.HELD, 1001, 100)
    assert await books.changes(before) == lines("""
        nodes n1 reserved=667/66 committed=1001/100 pods=1 version=2
        pods v1 name=default/v1 node=n1 stage=held rv=1 heard=epoch1 vm=1 scaled=1
          amount=1001/100 charge=667/66 asked=1001/100 use=1001/100 max=8000/800 over=1500/1500
          deadline=+30min stamp=10
        names default/v1 v1
        changes n1 2
        deadlines v1 +30min
        meta pods 1
        meta version 2
        journal reserve v1 -->n1 |held 1001 100 667 66 1001 100 0 0 @ 667 66 667 66
    """)


async def test_reserve_pod_keeps_every_digit_of_large_numbers(books: Books) -> None:
    """Lua's own `tostring` and cjson lose digits from 1e14 up."""
    most = MAX_MEM_BYTES - 1
    await books.put_node("n1", 1 << 30, 100 * most)

    for number in range(100):
        await books.reserve(pod(f"u{number}", mem=most))
    one_more = await books.reserve(pod("last", mem=1))

    assert await books.reserved() == (100_000, 100 * most)
    assert await books.amount("u99") == (1000, most)
    assert one_more == no_room("mem")


async def test_reserve_pod_gives_the_last_unit_to_one_only(books: Books) -> None:
    await books.put_node("n1", 1000, 800)

    first = await books.reserve(pod("u1"))
    second = await books.reserve(pod("u2"))
    fact = await books.put_pod(pod("u3", node="n1"))

    assert (first.outcome, second.outcome, fact) == (Reserve.HELD, Reserve.NO_ROOM, Fact.BOOKED)
    assert (await books.node()).over_capacity
    assert (await books.node()).epoch == EPOCH
