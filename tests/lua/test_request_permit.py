from __future__ import annotations

import pytest

from autoscale_enforcer.ledger.outcomes import Permit, PermitAnswer
from autoscale_enforcer.model.resources import MAX_MEM_BYTES, Resources
from tests.support.books import GIB, Books, lines, pod, vm


def permit(cpu: int, mem: int = 100) -> PermitAnswer:
    return PermitAnswer(outcome=Permit.PERMIT, amount=Resources(cpu, mem))


async def with_vm(
    books: Books, cpu: int = 1000, mem: int = 100, *, migration_source: bool = False
) -> None:
    """VM v1 bound to n1, of 4000 and 800."""
    await books.put_node("n1")
    await books.put_pod(pod("v1", node="n1", vm=vm(cpu, mem), migration_source=migration_source))


# Growing and shrinking


async def test_request_permit_grants_what_is_asked_for(books: Books) -> None:
    await with_vm(books)
    before = await books.dump()

    answer = await books.request("v1", 3000, 300, stamp=10)

    assert answer == permit(3000, 300)
    assert await books.changes(before) == lines("""
        nodes n1 sums=3000/300 heard=1 version=3
        pods v1 heard=epoch1 holds=3000/300 factor=250/10 stamp=10
        changes n1 3
        meta version 3
        journal request v1 n1->n1 bound 1000 100 1000 100 1000 100 0 0|bound 3000 300 3000 300
          3000 300 0 0 @ 3000 300 4000 800
    """)


async def test_request_permit_grants_whole_units_of_what_is_left(books: Books) -> None:
    await with_vm(books)
    await books.put_pod(pod("u1", node="n1", cpu=2001, mem=0))
    before = await books.dump()

    answer = await books.request("v1", 3000, unit=(250, 10), stamp=10)

    assert answer == permit(1750)
    assert await books.changes(before) == lines("""
        nodes n1 sums=3751/100 pressure=1250/0 heard=1 version=4
        pods v1 heard=epoch1 amount=1750/100 charge=1750/100 asked=3000/100 factor=250/10 stamp=10
        changes n1 4
        meta version 4
        journal request v1 n1->n1 bound 1000 100 1000 100 1000 100 0 0|bound 1750 100 1750 100
          3000 100 0 0 @ 3751 100 4000 800
    """)


async def test_request_permit_gives_back_at_once(books: Books) -> None:
    await with_vm(books, 3000, 300)
    before = await books.dump()

    answer = await books.request("v1", 1, 1, stamp=10)

    assert answer == permit(1, 1)
    assert await books.changes(before) == lines("""
        nodes n1 sums=1/1 heard=1 version=3
        pods v1 heard=epoch1 holds=1/1 factor=250/10 stamp=10
        changes n1 3
        meta version 3
        journal request v1 n1->n1 bound 3000 300 3000 300 3000 300 0 0|bound 1 1 1 1 1 1 0 0
          @ 1 1 4000 800
    """)


async def test_request_permit_judges_each_resource_alone(books: Books) -> None:
    await with_vm(books, 1000, 800)

    answer = await books.request("v1", 2000, 900)

    assert answer == permit(2000, 800)


async def test_request_permit_takes_the_pressure_back_when_room_has_come(books: Books) -> None:
    await with_vm(books)
    await books.put_pod(pod("u1", node="n1", cpu=3000, mem=0))
    await books.request("v1", 3000, stamp=10)
    pressure = (await books.node()).pressure
    await books.delete_pod("u1")

    answer = await books.request("v1", 3000, stamp=10)

    assert pressure == Resources(2000, 0)
    assert answer == permit(3000)
    assert (await books.node()).pressure == Resources(0, 0)


async def test_request_permit_again_changes_nothing(books: Books) -> None:
    await with_vm(books)
    await books.request("v1", 3000, 300, stamp=10)
    before = await books.dump()

    answer = await books.request("v1", 3000, 300, stamp=10)

    assert answer == permit(3000, 300)
    assert await books.dump() == before


async def test_request_permit_refuses_what_was_asked_before_the_newest_change(
    books: Books,
) -> None:
    """A first send whose socket had been given up ran seconds later and undid a grant."""
    await with_vm(books)
    await books.request("v1", 3000, 300, stamp=20)
    before = await books.dump()

    answer = await books.request("v1", 1000, 100, stamp=19)

    assert answer == PermitAnswer(outcome=Permit.LATE)
    assert await books.dump() == before


async def test_request_permit_lets_the_source_of_a_migration_shrink_only(books: Books) -> None:
    await with_vm(books, 2000, 200, migration_source=True)

    answer = await books.request("v1", 3000, 100)

    row = await books.node()
    assert answer == permit(2000, 100)
    assert row.pressure == Resources(1000, 0)
    assert row.migrating == Resources(2000, 100)


async def test_request_permit_never_grows_past_what_the_node_has_left_over(books: Books) -> None:
    """Only facts take a node over capacity; on such a node nothing grows, and all may shrink."""
    await with_vm(books, 2000, 200)
    await books.put_pod(pod("u1", node="n1", cpu=9000, mem=900))

    grown = await books.request("v1", 3000, 300, stamp=10)
    shrunk = await books.request("v1", 1000, 100, stamp=20)

    assert (grown, shrunk) == (permit(2000, 200), permit(1000, 100))
    assert await books.reserved() == (10_000, 1000)


# Discounts


async def test_request_permit_grows_by_what_is_left_times_the_discount(books: Books) -> None:
    await books.put_node("n1", 1000, 100)
    await books.put_pod(pod("v1", node="n1", vm=vm(500, 50, over=(1500, 1500))))

    answer = await books.request("v1", 8000, 800, unit=(250, 50))

    # 1000 - 333 = 667 left, times 1.5 is 1000 in steps of 250; 100 - 33 = 67, times 1.5 is 100.
    assert answer == permit(1500, 150)
    assert await books.reserved() == (1000, 100)


@pytest.mark.parametrize("over", [100, 333, 999, 1001, 1500, 100_000])
async def test_request_permit_never_rounds_a_node_over_its_capacity(
    books: Books, over: int
) -> None:
    await books.put_node("n1", 1001, 101)
    await books.put_pod(pod("v1", node="n1", vm=vm(7, 7, over=(over, over))))

    await books.request("v1", 1 << 20, 1 << 20, unit=(1, 1))

    assert not (await books.node()).over_capacity


# Field reports


async def test_request_permit_serves_bounds_that_are_no_multiple_of_the_unit(
    books: Books,
) -> None:
    """Field report 11, VM-a: such a VM was refused."""
    await books.put_node("n1", 8000, 32 * GIB)
    await books.put_pod(pod("v1", node="n1", vm=vm(1000, GIB, most=(1000, GIB))))

    answer = await books.request("v1", 1000, GIB, unit=(1000, 4 * GIB))

    assert answer == permit(1000, GIB)


async def test_request_permit_floors_what_is_left_and_grants_memory_in_full(
    books: Books,
) -> None:
    """Field report 11, VM-b: 600m are left, two CPUs more are asked for."""
    await books.put_node("n1", 1600, 32 * GIB)
    await books.put_pod(pod("v1", node="n1", vm=vm(1000, GIB, most=(8000, 32 * GIB))))

    answer = await books.request("v1", 3000, 3 * GIB, unit=(250, GIB))

    assert answer == permit(1500, 3 * GIB)


async def test_request_permit_does_not_add_the_last_permit_to_what_is_held(books: Books) -> None:
    """Field report 12a: a must-honour minimum was added on top."""
    await books.put_node("n1", 10_000, 800)
    await books.put_pod(pod("u1", node="n1", cpu=3000, mem=0))
    await books.put_pod(pod("v1", node="n1", vm=vm(4000, 100)))

    answer = await books.request("v1", 8000, 200, unit=(2000, 10), last=(4000, 100))

    assert answer == permit(6000, 200)
    assert await books.reserved() == (9000, 200)


async def test_request_permit_does_not_wrap_on_a_node_over_capacity(books: Books) -> None:
    """Field report 12b: a subtraction wrapped, and the permit was giant."""
    await books.put_node("n1", 10_000, 800)
    await books.put_pod(pod("u1", node="n1", cpu=10_000, mem=0))
    await books.put_pod(pod("v1", node="n1", vm=vm(2000, 100)))

    answer = await books.request("v1", 3000, 200, unit=(1000, 10), last=(2000, 100))

    assert answer == permit(2000, 200)
    assert await books.reserved() == (12_000, 200)


# The last permit


async def test_request_permit_restores_a_grant_that_was_lost(books: Books) -> None:
    """A fact: taken even where the node ends over capacity."""
    await with_vm(books)
    await books.put_pod(pod("u1", node="n1", cpu=3000, mem=0))
    before = await books.dump()

    answer = await books.request("v1", 3000, 300, last=(2500, 200), stamp=10)

    assert answer == permit(2500, 300)
    assert await books.changes(before) == lines("""
        nodes n1 sums=5500/300 pressure=500/0 heard=1 version=4
        pods v1 heard=epoch1 amount=2500/300 charge=2500/300 asked=3000/300 factor=250/10 stamp=10
        changes n1 4
        meta version 4
        journal restore v1 n1->n1 bound 1000 100 1000 100 1000 100 0 0|bound 2500 300 2500 300
          3000 300 0 0 @ 5500 300 4000 800
    """)


@pytest.mark.parametrize(
    ("asked", "last", "held"),
    [
        pytest.param((2000, 200), (3000, 300), (2000, 200), id="capped by what is asked"),
        pytest.param((9000, 900), (9000, 900), (8000, 800), id="capped by the VM's maximum"),
        pytest.param((2000, 200), (500, 50), (1000, 100), id="below what is held"),
        pytest.param((500, 50), (3000, 300), (500, 50), id="shrinks all the same"),
    ],
)
async def test_request_permit_takes_the_last_permit_within_bounds(
    books: Books, asked: tuple[int, int], last: tuple[int, int], held: tuple[int, int]
) -> None:
    await books.put_node("n1", 1000, 100)
    await books.put_pod(pod("v1", node="n1", vm=vm(1000, 100, most=(8000, 800))))

    answer = await books.request("v1", *asked, last=last)

    assert answer == permit(*held)


async def test_request_permit_takes_the_last_permit_once_an_epoch(books: Books) -> None:
    await books.put_node("n1", 1000, 100)
    await books.put_pod(pod("v1", node="n1", vm=vm(1000, 100)))
    await books.request("v1", 1000, 100, stamp=10)

    in_this_epoch = await books.request("v1", 3000, 300, last=(3000, 300), stamp=20)
    await books.new_epoch("epoch2")
    in_the_next = await books.request("v1", 3000, 300, last=(3000, 300), stamp=30)

    assert (in_this_epoch, in_the_next) == (permit(1000, 100), permit(3000, 300))


async def test_request_permit_takes_back_a_decrease_that_was_lost(books: Books) -> None:
    """A promotion lost that one VM had shrunk, and that another was told its room: the first was
    told its old amount again, unjudged, and the node was promised twice."""
    await books.put_node("n1", 4000, 800)
    for name in ("v1", "v2"):
        await books.put_pod(pod(name, node="n1", vm=vm(500, 100)))
    await books.request("v1", 3000, stamp=10)
    await books.new_epoch("epoch2")  # lost: v1 shrank to 500, v2 was told 3000

    grown = await books.request("v2", 3000, last=(3000, 100), stamp=20)
    shrunk = await books.request("v1", 1500, last=(500, 100), stamp=20)

    assert (grown, shrunk) == (permit(3000), permit(1000))
    assert await books.reserved() == (4000, 200)


async def test_request_permit_starts_at_what_is_used_where_less_was_told(books: Books) -> None:
    """An agent rejects a permit below what its VM uses."""
    await books.put_node("n1", 1000, 100)
    await books.put_pod(pod("v1", node="n1", vm=vm(1000, 100)))

    answer = await books.request("v1", 2000, 200, last=(500, 50))

    assert answer == permit(1000, 100)


async def test_request_permit_believes_no_last_permit_of_a_pod_placed_in_this_epoch(
    books: Books,
) -> None:
    await books.put_node("n1", 1000, 100)
    await books.begin_bind(pod("v1", vm=vm(1000, 100)))
    await books.confirm("v1")

    answer = await books.request("v1", 3000, 300, last=(3000, 300), stamp=20)

    assert answer == permit(1000, 100)


# Books that may lack something


async def test_request_permit_lets_nothing_grow_on_suspect_books(books: Books) -> None:
    await with_vm(books)
    await books.new_epoch(state="suspect")

    answer = await books.request("v1", 3000, 50, last=(2000, 0))

    assert answer == permit(2000, 50)


async def test_request_permit_waits_for_every_agent_of_the_node(books: Books) -> None:
    await with_vm(books)
    await books.put_pod(pod("v2", node="n1", vm=vm(500, 50)))
    await books.settles_at(+3600)

    alone = await books.request("v1", 2000, stamp=10)
    last_one = await books.request("v2", 1000, stamp=10)
    then = await books.request("v1", 2000, stamp=20)

    assert (alone, last_one, then) == (permit(1000), permit(1000), permit(2000))


# Who is asked for


async def test_request_permit_tells_what_a_vm_without_autoscaling_holds(books: Books) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("v1", node="n1", vm=vm(2000, 200, autoscaling=False)))
    before = await books.dump()

    answer = await books.request("v1", 3000, 300)

    assert answer == PermitAnswer(outcome=Permit.FIXED, amount=Resources(2000, 200))
    assert await books.dump() == before


async def test_request_permit_knows_no_pod_of_that_name(books: Books) -> None:
    before = await books.dump()

    answer = await books.request("v1", 3000)

    assert answer == PermitAnswer(outcome=Permit.UNKNOWN)
    assert await books.dump() == before


@pytest.mark.parametrize("stage", ["pending", "held", "binding"])
async def test_request_permit_waits_until_the_pod_is_bound(books: Books, stage: str) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("v1", vm=vm()))
    if stage != "pending":
        await books.reserve("v1", to="binding" if stage == "binding" else "held")
    before = await books.dump()

    answer = await books.request("v1", 3000)

    assert answer == PermitAnswer(outcome=Permit.UNBOUND)
    assert await books.dump() == before


async def test_request_permit_refuses_a_pod_that_runs_no_vm(books: Books) -> None:
    await books.put_pod(pod("u1", node="n1"))
    before = await books.dump()

    answer = await books.request("u1", 3000)

    assert answer == PermitAnswer(outcome=Permit.NOT_VM)
    assert await books.dump() == before


async def test_request_permit_refuses_a_vm_that_cannot_be_read(books: Books) -> None:
    await books.put_pod(pod("v1", node="n1", problem="metadata.annotations: no JSON"))
    before = await books.dump()

    answer = await books.request("v1", 3000)

    assert answer == PermitAnswer(outcome=Permit.UNREADABLE)
    assert await books.dump() == before


async def test_request_permit_serves_the_newest_pod_of_a_name(books: Books) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("old", name="v1", rv="1", node="n1", vm=vm(1000, 100)))
    await books.put_pod(pod("new", name="v1", rv="2", node="n1", vm=vm(500, 50)))

    answer = await books.request("v1", 1500, 150)

    assert answer == permit(1500, 150)
    assert await books.reserved() == (1500, 150)


async def test_request_permit_keeps_every_digit_of_large_numbers(books: Books) -> None:
    most = MAX_MEM_BYTES - 1
    await books.put_node("n1", 4000, most)
    await books.put_pod(pod("v1", node="n1", vm=vm(1000, 1, over=(1000, 100_000))))

    answer = await books.request("v1", 1000, most, unit=(1, 7))

    assert answer == permit(1000, most)
    assert await books.reserved() == (1000, most // 100)
