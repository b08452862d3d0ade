"""Who keeps a place when more want one than there are."""

from __future__ import annotations

from autoscale_enforcer.api.door.places import Place, Places


class Port:
    """Places, and the names of those that had to give theirs up."""

    def __init__(self, limit: int) -> None:
        self.places = Places(limit)
        self.gone: list[str] = []

    def take(self, name: str, address: str) -> Place:
        """One more, for which another had to go where they were full."""
        if self.places.is_full:
            assert self.places.make_room()
        place = self.places.take(address)

        def go() -> None:
            self.gone.append(name)
            self.places.leave(place)

        place.give_up = go
        return place

    def proven(self, name: str, address: str) -> Place:
        """One that has been answered once and waits."""
        place = self.take(name, address)
        self.places.begin(place)
        self.places.end(place)
        return place


def test_nobody_has_to_go_while_there_are_places() -> None:
    port = Port(3)

    for name in "abc":
        port.take(name, "10.0.0.1")

    assert (port.gone, port.places.taken) == ([], 3)


def test_the_address_with_the_most_places_gives_one_up() -> None:
    port = Port(4)
    port.proven("quiet", "10.0.0.1")
    for name in ("greedy-1", "greedy-2", "greedy-3"):
        port.proven(name, "10.0.0.2")

    port.take("newcomer", "10.0.0.3")

    assert (port.gone, port.places.taken) == (["greedy-1"], 4)


def test_of_one_address_those_go_first_that_never_asked_the_oldest_before_the_others() -> None:
    port = Port(4)
    port.proven("idle", "10.0.0.1")
    for name in "abc":
        port.take(name, "10.0.0.1")

    for name in "def":
        port.take(name, "10.0.0.1")

    assert port.gone == ["a", "b", "c"]


def test_then_those_that_have_been_idle_longest() -> None:
    port = Port(3)
    first, *_ = (port.proven(name, "10.0.0.1") for name in "abc")
    port.places.begin(first)
    port.places.end(first)

    port.proven("d", "10.0.0.1")
    port.proven("e", "10.0.0.1")

    assert port.gone == ["b", "c"]


def test_what_is_being_answered_stays_and_a_newcomer_is_refused_when_nothing_else_is_left() -> None:
    port = Port(2)
    places = [port.take(name, "10.0.0.1") for name in "ab"]
    for place in places:
        port.places.begin(place)

    assert port.places.is_full
    assert not port.places.make_room()

    assert (port.gone, port.places.taken) == ([], 2)
    port.places.end(places[1])
    port.take("newcomer", "10.0.0.2")
    assert port.gone == ["b"]


def test_a_flood_from_one_address_costs_others_nothing() -> None:
    port = Port(100)
    for number in range(50):
        port.proven(f"quiet-{number}", f"10.0.1.{number}")

    for number in range(10_000):
        port.take(f"flood-{number}", "10.0.0.1")

    assert all(name.startswith("flood") for name in port.gone)
    assert (len(port.gone), port.places.taken) == (9950, 100)


def test_who_has_left_is_forgotten_and_leaving_twice_counts_once() -> None:
    port = Port(2)
    place, other = port.take("a", "10.0.0.1"), port.take("b", "10.0.0.2")

    port.places.leave(place)
    port.places.leave(place)

    assert port.places.taken == 1
    port.places.leave(other)
    assert (port.places.taken, port.places._callers) == (0, {})


def test_what_happens_to_a_connection_that_has_left_changes_nothing() -> None:
    port = Port(2)
    place = port.take("a", "10.0.0.1")
    port.places.leave(place)

    port.places.begin(place)
    port.places.end(place)

    assert (port.places.taken, place.caller.spare, place.caller.busy) == (0, 0, set())


def test_a_place_that_was_given_up_counts_until_its_connection_has_ended() -> None:
    places = Places(1)
    place = places.take("10.0.0.1")

    assert places.make_room()
    assert places.make_room()

    assert (places.is_full, places.evicted) == (True, 1)
    places.leave(place)
    places.leave(place)
    assert (places.is_full, places.taken) == (False, 0)
