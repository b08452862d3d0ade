from __future__ import annotations

from dataclasses import replace

import pytest

from autoscale_enforcer.ledger.kept import pack_fact, pack_whole, unpack_fact
from autoscale_enforcer.ledger.outcomes import Fact, Reserve
from autoscale_enforcer.model.facts import PodFact
from autoscale_enforcer.model.resources import MAX_MEM_BYTES, Resources
from tests.support.books import Books, lines, pod, vm

# A pod that nobody knew


async def test_put_pod_notes_a_pending_pod(books: Books) -> None:
    await books.put_node("n1")
    before = await books.dump()

    answer = await books.put_pod(pod("u1"))

    assert answer is Fact.BOOKED
    assert await books.changes(before) == lines("""
        pods u1 name=default/u1 rv=1 holds=1000/100
        names default/u1 u1
        meta pods 1
        journal put_pod u1 -->- |pending 1000 100 1000 100 1000 100 0 0
    """)


async def test_put_pod_books_a_bound_pod(books: Books) -> None:
    await books.put_node("n1")
    before = await books.dump()

    answer = await books.put_pod(pod("u1", node="n1"))

    assert answer is Fact.BOOKED
    assert await books.changes(before) == lines("""
        nodes n1 sums=1000/100 pods=1 version=2
        pods u1 name=default/u1 node=n1 stage=bound rv=1 holds=1000/100
        names default/u1 u1
        changes n1 2
        meta pods 1
        meta version 2
        journal put_pod u1 -->n1 |bound 1000 100 1000 100 1000 100 0 0 @ 1000 100 4000 800
    """)


async def test_put_pod_books_even_over_capacity(books: Books) -> None:
    await books.put_node("n1", 1000, 100)
    await books.reserve(pod("u1"))

    answer = await books.put_pod(pod("u2", node="n1"))

    assert answer is Fact.BOOKED
    assert await books.reserved() == (2000, 200)
    assert (await books.node()).over_capacity


async def test_put_pod_makes_an_absent_row_for_an_unknown_node(books: Books) -> None:
    before = await books.dump()

    answer = await books.put_pod(pod("u1", node="n1"))

    assert answer is Fact.BOOKED
    assert await books.changes(before) == lines("""
        nodes n1 epoch=epoch1 absent=1 sums=1000/100 pods=1 version=1
        pods u1 name=default/u1 node=n1 stage=bound rv=1 holds=1000/100
        names default/u1 u1
        changes n1 1
        meta nodes 1
        meta pods 1
        meta version 1
        journal put_pod u1 -->n1 |bound 1000 100 1000 100 1000 100 0 0 @ 1000 100 0 0
    """)


async def test_put_pod_books_a_vm_with_its_bounds_and_discount(books: Books) -> None:
    await books.put_node("n1")
    before = await books.dump()

    answer = await books.put_pod(pod("v1", node="n1", vm=vm(1001, 100, over=(1500, 3000))))

    assert answer is Fact.BOOKED
    assert await books.changes(before) == lines("""
        nodes n1 reserved=667/33 committed=1001/100 pods=1 vms=1 version=2
        pods v1 name=default/v1 node=n1 stage=bound rv=1 vm=1 scaled=1 amount=1001/100
          charge=667/33 asked=1001/100 use=1001/100 max=8000/800 over=1500/3000
        names default/v1 v1
        facts v1 blob
        changes n1 2
        meta pods 1
        meta version 2
        journal put_pod v1 -->n1 |bound 1001 100 667 33 1001 100 0 0 @ 667 33 4000 800
    """)


async def test_put_pod_counts_a_vm_that_cannot_be_read_by_its_requests(books: Books) -> None:
    await books.put_node("n1")
    before = await books.dump()

    answer = await books.put_pod(pod("v1", node="n1", problem="metadata.annotations: no JSON"))

    assert answer is Fact.BOOKED
    assert await books.changes(before) == lines("""
        nodes n1 sums=1000/100 pods=1 version=2
        pods v1 name=default/v1 node=n1 stage=bound rv=1 vm=1 broken=1 holds=1000/100
        names default/v1 v1
        facts v1 blob
        changes n1 2
        meta pods 1
        meta version 2
        journal put_pod v1 -->n1 |bound 1000 100 1000 100 1000 100 0 0 @ 1000 100 4000 800
    """)


async def test_put_pod_counts_an_ignored_namespace_apart(books: Books) -> None:
    await books.put_node("n1")
    before = await books.dump()

    answer = await books.put_pod(pod("u1", node="n1"), ignored=True)

    assert answer is Fact.BOOKED
    assert await books.changes(before) == lines("""
        nodes n1 ignored=1000/100 pods=1 version=2
        pods u1 name=default/u1 node=n1 stage=bound rv=1 ignored=1 holds=1000/100
        names default/u1 u1
        changes n1 2
        meta pods 1
        meta version 2
        journal put_pod u1 -->n1 |bound 1000 100 1000 100 1000 100 1 0 @ 0 0 4000 800
    """)


async def test_put_pod_counts_the_source_of_a_migration(books: Books) -> None:
    await books.put_node("n1")
    before = await books.dump()

    answer = await books.put_pod(pod("v1", node="n1", vm=vm(), migration_source=True))

    assert answer is Fact.BOOKED
    assert await books.changes(before) == lines("""
        nodes n1 sums=1000/100 migrating=1000/100 pods=1 vms=1 version=2
        pods v1 name=default/v1 node=n1 stage=bound rv=1 vm=1 scaled=1 moving=1 holds=1000/100
          use=1000/100 max=8000/800
        names default/v1 v1
        facts v1 blob
        changes n1 2
        meta pods 1
        meta version 2
        journal put_pod v1 -->n1 |bound 1000 100 1000 100 1000 100 0 1 @ 1000 100 4000 800
    """)


async def test_put_pod_keeps_what_the_row_does_not_say(books: Books) -> None:
    fact = pod("v1", vm=vm(approved=Resources(1, 2)), labels={"app": "web"})

    await books.put_pod(fact)

    known = await books.ledger.read_pod(uid=fact.uid)
    assert known is not None
    assert known.blob == pack_fact(fact)
    assert unpack_fact(known) == fact


async def test_put_pod_keeps_all_of_a_plain_pod_for_replicas_that_share_a_copy(
    books: Books,
) -> None:
    """Those of the first release take nothing from the row, and could not bind the pod."""
    books.ledger.settings = replace(books.ledger.settings, keeps_whole_facts=True)
    fact = pod("u1")

    await books.put_pod(fact)

    known = await books.ledger.read_pod(uid=fact.uid)
    assert known is not None
    assert known.blob == pack_whole(fact)


async def test_put_pod_forgets_what_is_said_no_more(books: Books) -> None:
    await books.put_pod(pod("u1", rv="1", labels={"app": "web"}))
    before = await books.dump()

    await books.put_pod(pod("u1", rv="2"))

    assert await books.changes(before) == lines("""
        pods u1 rv=2
        facts u1 gone
    """)


async def test_put_pod_keeps_every_digit_of_large_numbers(books: Books) -> None:
    most = MAX_MEM_BYTES - 1
    await books.put_node("n1", 1000, most)

    for number in range(100):
        await books.put_pod(pod(f"u{number}", node="n1", mem=most))

    assert await books.reserved() == (100_000, 100 * most)


# A pod that is known


async def test_put_pod_again_changes_nothing(books: Books) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("v1", node="n1", vm=vm()))
    before = await books.dump()

    answer = await books.put_pod(pod("v1", node="n1", vm=vm()))

    assert answer is Fact.KNOWN
    assert await books.dump() == before


async def test_put_pod_applies_an_equal_version_when_config_has_changed(books: Books) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("u1", rv="5", node="n1"))
    before = await books.dump()

    answer = await books.put_pod(pod("u1", rv="5", node="n1"), ignored=True)

    assert answer is Fact.BOOKED
    assert await books.changes(before) == lines("""
        nodes n1 sums=0/0 ignored=1000/100 version=3
        pods u1 ignored=1
        changes n1 3
        meta version 3
        journal put_pod u1 n1->n1 bound 1000 100 1000 100 1000 100 0 0|bound 1000 100 1000 100
          1000 100 1 0 @ 0 0 4000 800
    """)


async def test_put_pod_ignores_an_older_version(books: Books) -> None:
    """Versions are compared as numbers: 9 is older than 10."""
    await books.put_node("n1")
    await books.put_pod(pod("u1", rv="10", node="n1", cpu=2000))
    before = await books.dump()

    answer = await books.put_pod(pod("u1", rv="9", node="n1", cpu=1000))

    assert answer is Fact.OLD
    assert await books.dump() == before


async def test_put_pod_books_a_resize_in_place(books: Books) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("u1", rv="1", node="n1", cpu=1000))
    before = await books.dump()

    answer = await books.put_pod(pod("u1", rv="2", node="n1", cpu=3000))

    assert answer is Fact.BOOKED
    assert await books.changes(before) == lines("""
        nodes n1 sums=3000/100 version=3
        pods u1 rv=2 holds=3000/100
        changes n1 3
        meta version 3
        journal put_pod u1 n1->n1 bound 1000 100 1000 100 1000 100 0 0|bound 3000 100 3000 100
          3000 100 0 0 @ 3000 100 4000 800
    """)


async def test_put_pod_without_a_node_never_touches_a_hold(books: Books) -> None:
    await books.put_node("n1")
    await books.reserve(pod("u1", rv="1"))
    before = await books.dump()

    answer = await books.put_pod(pod("u1", rv="2", cpu=3000, labels={"app": "web"}))

    assert answer is Fact.KNOWN
    assert await books.changes(before) == "facts u1 blob"


async def test_put_pod_with_a_node_makes_a_hold_bound(books: Books) -> None:
    await books.put_node("n1")
    await books.begin_bind(pod("u1", rv="1"), stamp=10)
    before = await books.dump()

    answer = await books.put_pod(pod("u1", rv="2", node="n1"))

    assert answer is Fact.BOOKED
    assert await books.changes(before) == lines("""
        pods u1 stage=bound rv=2 deadline=0
        deadlines u1 gone
        journal put_pod u1 n1->n1 binding 1000 100 1000 100 1000 100 0 0|bound 1000 100 1000 100
          1000 100 0 0 @ 1000 100 4000 800
    """)


async def test_put_pod_moves_a_hold_to_where_the_pod_is(books: Books) -> None:
    await books.put_node("n1")
    await books.put_node("n2")
    await books.reserve(pod("u1"), "n1")

    answer = await books.put_pod(pod("u1", rv="2", node="n2"))

    assert answer is Fact.BOOKED
    assert await books.reserved("n1") == (0, 0)
    assert await books.reserved("n2") == (1000, 100)


# Finished and deleted pods


@pytest.mark.parametrize("stage", ["bound", "held", "pending"])
async def test_put_pod_frees_a_finished_pod(books: Books, stage: str) -> None:
    """Field report 18: freed at the phase change, counted nowhere after, subtracted once."""
    await books.put_node("n1")
    await books.put_pod(pod("u1", node="n1" if stage == "bound" else None))
    if stage == "held":
        await books.reserve("u1")

    answer = await books.put_pod(pod("u1", rv="2", node="n1", finished=True))
    before = await books.dump()
    again = await books.put_pod(pod("u1", rv="2", node="n1", finished=True))
    deleted = await books.delete_pod("u1")

    assert (answer, again, deleted) == (Fact.RELEASED, Fact.GONE, Fact.NOTHING)
    assert await books.reserved() == (0, 0)
    assert await books.changes(before) == ""


async def test_put_pod_books_the_end_of_a_pod(books: Books) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("u1", node="n1"))
    before = await books.dump()

    answer = await books.put_pod(pod("u1", rv="2", node="n1", finished=True))

    assert answer is Fact.RELEASED
    assert await books.changes(before) == lines("""
        nodes n1 sums=0/0 pods=0 version=3
        pods u1 gone
        names default/u1 gone
        changes n1 3
        gone u1 now
        meta pods 0
        meta version 3
        journal finish u1 n1->- bound 1000 100 1000 100 1000 100 0 0|
    """)


async def test_put_pod_remembers_a_pod_that_was_finished_when_first_seen(books: Books) -> None:
    before = await books.dump()

    answer = await books.put_pod(pod("u1", node="n1", finished=True))

    assert answer is Fact.RELEASED
    assert await books.changes(before) == "gone u1 now"


@pytest.mark.parametrize("to", ["held", "binding"])
async def test_put_pod_releases_an_unbound_pod_being_deleted(books: Books, to: str) -> None:
    await books.put_node("n1")
    await books.reserve(pod("u1"), to="binding" if to == "binding" else "held")

    answer = await books.put_pod(pod("u1", rv="2", deleting=True))

    row = await books.pod("u1")
    assert answer is Fact.RELEASED
    assert row is not None
    assert (row.stage, row.node, row.deadline) == ("pending", "-", 0)
    assert await books.reserved() == (0, 0)


async def test_put_pod_keeps_a_bound_pod_being_deleted(books: Books) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("u1", node="n1"))

    await books.put_pod(pod("u1", rv="2", node="n1", deleting=True))

    assert await books.reserved() == (1000, 100)


async def test_put_pod_books_nothing_for_a_pod_that_is_gone(books: Books) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("u1", node="n1"))
    await books.delete_pod("u1")
    before = await books.dump()

    answer = await books.put_pod(pod("u1", rv="9", node="n1"))

    assert answer is Fact.GONE
    assert await books.dump() == before


# Names


async def test_put_pod_takes_a_newer_pod_of_a_name_for_the_end_of_the_older(books: Books) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("old", name="web", rv="1", node="n1", labels={"app": "web"}))
    before = await books.dump()

    answer = await books.put_pod(pod("new", name="web", rv="2"))

    assert answer is Fact.BOOKED
    assert await books.changes(before) == lines("""
        nodes n1 sums=0/0 pods=0 version=3
        pods new name=default/web rv=2 holds=1000/100
        pods old gone
        names default/web new
        facts old gone
        changes n1 3
        gone old now
        meta version 3
        journal replace old n1->- bound 1000 100 1000 100 1000 100 0 0|
        journal put_pod new -->- |pending 1000 100 1000 100 1000 100 0 0
    """)


async def test_put_pod_ignores_a_pod_older_than_that_of_its_name(books: Books) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("new", name="web", rv="10", node="n1"))
    before = await books.dump()

    answer = await books.put_pod(pod("old", name="web", rv="9", node="n1"))

    assert answer is Fact.OLD
    assert await books.dump() == before


# VMs: what the fact says, and the permit that we gave


async def test_put_pod_leaves_a_permit_granted_meanwhile(books: Books) -> None:
    """The annotation trails the agent: unchanged use is no news."""
    await books.put_node("n1")
    await books.put_pod(pod("v1", rv="1", node="n1", vm=vm(1000, 100)))
    await books.request("v1", 3000, 300)

    await books.put_pod(pod("v1", rv="2", node="n1", vm=vm(1000, 100)))

    assert await books.amount("v1") == (3000, 300)
    assert await books.reserved() == (3000, 300)


@pytest.mark.parametrize(
    ("use", "held"),
    [
        pytest.param((2000, 200), (3000, 300), id="risen below the permit"),
        pytest.param((4000, 400), (4000, 400), id="risen above the permit"),
        pytest.param((500, 400), (3000, 400), id="each resource on its own"),
        pytest.param((500, 50), (3000, 300), id="fallen"),
    ],
)
async def test_put_pod_raises_a_permit_to_a_risen_use_only(
    books: Books, use: tuple[int, int], held: tuple[int, int]
) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("v1", rv="1", node="n1", vm=vm(1000, 100)))
    await books.request("v1", 3000, 300)

    await books.put_pod(pod("v1", rv="2", node="n1", vm=vm(*use)))

    assert await books.amount("v1") == held


async def test_put_pod_does_not_raise_a_shrunk_permit_to_an_unchanged_use(books: Books) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("v1", rv="1", node="n1", vm=vm(3000, 300)))
    await books.request("v1", 1000, 100)

    await books.put_pod(pod("v1", rv="2", node="n1", vm=vm(3000, 300)))

    assert await books.amount("v1") == (1000, 100)


async def test_put_pod_follows_use_where_autoscaling_is_off(books: Books) -> None:
    """Field report 24: use 2, 4, 1 without the label."""
    held = []
    for rv, use in [("1", 2000), ("2", 4000), ("3", 1000)]:
        await books.put_pod(pod("v1", rv=rv, node="n1", vm=vm(use, autoscaling=False)))
        held.append(await books.amount("v1"))

    assert held == [(2000, 100), (4000, 100), (1000, 100)]


async def test_put_pod_keeps_what_a_vm_without_autoscaling_holds_while_it_cannot_be_read(
    books: Books,
) -> None:
    """It fell to the requests of its pod, and the room that the VM uses was given away."""
    await books.put_node("n1")
    await books.put_pod(pod("v1", rv="1", node="n1", vm=vm(2000, 200, autoscaling=False)))

    for rv in ("2", "2", "3"):
        await books.put_pod(pod("v1", rv=rv, node="n1", cpu=1, mem=1, problem="no JSON"))
        assert await books.reserved() == (2000, 200)

    await books.put_pod(pod("v1", rv="4", node="n1", vm=vm(1000, 100, autoscaling=False)))
    assert await books.reserved() == (1000, 100)


async def test_put_pod_starts_from_use_when_autoscaling_is_switched_on_again(
    books: Books,
) -> None:
    """Field report 24: switching autoscaling off left old approvals in force."""
    await books.put_node("n1")
    await books.put_pod(pod("v1", rv="1", node="n1", vm=vm(1000)))
    await books.request("v1", 4000)
    held = [await books.amount("v1")]
    for rv, is_on in [("2", False), ("3", True)]:
        await books.put_pod(pod("v1", rv=rv, node="n1", vm=vm(2000, autoscaling=is_on)))
        held.append(await books.amount("v1"))

    assert held == [(4000, 100), (2000, 100), (2000, 100)]
    assert (await books.node()).vms == 1


async def test_put_pod_charges_a_permit_by_the_newest_discount(books: Books) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("v1", rv="1", node="n1", vm=vm(1000, 100)))
    await books.request("v1", 3000, 300)
    before = await books.dump()

    await books.put_pod(pod("v1", rv="2", node="n1", vm=vm(1000, 100, over=(2000, 1000))))

    assert await books.changes(before) == lines("""
        nodes n1 reserved=1500/300 version=4
        pods v1 rv=2 charge=1500/300 over=2000/1000
        changes n1 4
        meta version 4
        journal put_pod v1 n1->n1 bound 3000 300 3000 300 3000 300 0 0|bound 3000 300 1500 300
          3000 300 0 0 @ 1500 300 4000 800
    """)


async def test_put_pod_counts_what_was_approved_at_a_build_only(books: Books) -> None:
    fact = pod("v1", node="n1", vm=vm(1000, 100, approved=Resources(3000, 50)))
    building = await books.ledger.begin_build(books.leader)
    await books.put_pod(fact)
    live = await books.amount("v1")

    await books.put_pod(fact, leader=building)
    await books.ledger.publish_build(building or books.leader)

    assert live == (1000, 100)
    assert await books.amount("v1") == (3000, 100)


async def test_put_pod_keeps_the_permit_of_a_vm_that_can_no_longer_be_read(books: Books) -> None:
    """It fell to the requests of the runner pod, while the VM went on using its permit."""
    await books.put_node("n1")
    await books.put_pod(pod("v1", rv="1", node="n1", cpu=1, mem=1, vm=vm(1000, 100)))
    await books.request("v1", 3000, 300)

    await books.put_pod(pod("v1", rv="2", node="n1", cpu=1, mem=1, problem="no JSON"))

    assert await books.amount("v1") == (3000, 300)
    assert (await books.request("v1", 3000, 300)).outcome == "UNREADABLE"


def from_vm_object(rv: str, vm_rv: str, use: int, **more: str) -> PodFact:
    seen = vm(use, autoscaling=False, from_vm_object=True, vm_resource_version=vm_rv)
    return pod("v1", rv=rv, node="n1", vm=seen)


@pytest.mark.parametrize(
    ("second", "answer", "use"),
    [
        pytest.param(from_vm_object("4", "7", 2000), Fact.BOOKED, 2000, id="pod older, vm equal"),
        pytest.param(from_vm_object("4", "6", 2000), Fact.OLD, 1000, id="both older"),
        pytest.param(from_vm_object("4", "8", 2000), Fact.BOOKED, 2000, id="pod older, vm newer"),
        pytest.param(from_vm_object("6", "6", 2000), Fact.BOOKED, 1000, id="pod newer, vm older"),
        pytest.param(from_vm_object("6", "8", 2000), Fact.BOOKED, 2000, id="both newer"),
    ],
)
async def test_put_pod_takes_the_newer_of_each_object(
    books: Books, second: PodFact, answer: Fact, use: int
) -> None:
    await books.put_node("n1")
    await books.put_pod(from_vm_object("5", "7", 1000))

    found = await books.put_pod(second)

    row = await books.pod("v1")
    assert row is not None
    assert (found, row.cpu, row.rv) == (answer, use, max(second.resource_version, "5"))


# Who may say so


async def test_put_pod_adds_what_is_missing_as_read_by_any_replica(books: Books) -> None:
    await books.put_node("n1")

    answer = await books.put_pod(pod("u1", node="n1"), additive=True)

    assert answer is Fact.BOOKED
    assert await books.reserved() == (1000, 100)


async def test_put_pod_never_changes_the_leaders_row_for_another_replica(books: Books) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("u1", rv="1", node="n1"))
    labels = {"app": "web"}
    before = await books.dump()

    moved = pod("u1", rv="2", node="n2", cpu=2000, labels=labels)
    answer = await books.put_pod(moved, additive=True)
    ended = pod("u1", rv="2", node="n1", finished=True, labels=labels)
    finished = await books.put_pod(ended, additive=True)

    assert (answer, finished) == (Fact.KNOWN, Fact.KNOWN)
    assert await books.changes(before) == "facts u1 blob"


async def test_put_pod_lets_any_replica_book_a_hold_as_bound(books: Books) -> None:
    await books.put_node("n1")
    await books.begin_bind(pod("u1"))

    answer = await books.put_pod(pod("u1", rv="2", node="n1"), additive=True)

    row = await books.pod("u1")
    assert answer is Fact.BOOKED
    assert row is not None
    assert row.stage == "bound"


async def test_put_pod_and_reserve_agree_on_a_pod_that_was_read_first(books: Books) -> None:
    await books.put_node("n1", 1000, 100)
    await books.put_pod(pod("u1", node="n1"))

    other = await books.reserve(pod("u2"))

    assert other.outcome is Reserve.NO_ROOM
