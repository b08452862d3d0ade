"""Filter over one connection, against the Go extender that an engineer would write instead."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle

from bench.agents import requests_of
from bench.cluster import node_name
from bench.figures import Figure, Rounds, WrongAnswer
from bench.judge import books_of, judge_filter, verify
from bench.ledgers import pod_needs
from bench.load import Connection, request
from bench.peer_program import peer_binary
from bench.programs import api_server, go_peer, live_cluster, redis_server, replicas
from bench.scale import Say, Scale
from bench.scheduling import SIZES, asked_pod, names_body, nodes_body, same_answer

LIMITS = {5000: 0.8, 1000: 1.2, 100: 2.5}
WHOLE_LIMIT = 0.8
MOST_CALLS = 300

_PODS = 2 * len(SIZES)


@dataclass(frozen=True, slots=True)
class Question:
    """One kind of filter."""

    name: str
    limit: float
    nodes: int
    bodies: Sequence[bytes]
    calls: int


def questions(scale: Scale) -> list[Question]:
    """All kinds; a small one is asked more often, for it takes less."""
    found = []
    for nodes in scale.names:
        bodies = [names_body(number, nodes) for number in range(_PODS)]
        calls = min(scale.calls * scale.names[0] // nodes, MOST_CALLS)
        found.append(Question(f"{nodes} names", LIMITS.get(nodes, 1), nodes, bodies, calls))
    bodies = [nodes_body(number, scale.whole_nodes) for number in range(len(SIZES))]
    kib = len(bodies[0]) / scale.whole_nodes / 1024
    name = f"{scale.whole_nodes} whole nodes of {kib:.0f} KiB"
    calls = max(scale.calls // 3, 1)
    return [*found, Question(name, WHOLE_LIMIT, scale.whole_nodes, bodies, calls)]


def run(scale: Scale, say: Say) -> Iterator[Figure]:
    """The median time of each kind of filter, as a share of the peer's."""
    with ExitStack() as stack:
        say(f"starting a replica, and the peer, over {scale.filters.nodes} nodes")
        api = stack.enter_context(api_server(scale.filters))
        server = stack.enter_context(redis_server())
        flags = stack.enter_context(live_cluster(api.said))
        (replica,) = stack.enter_context(replicas(server.tcp_url, "kubernetes", *flags))
        peer = stack.enter_context(go_peer(peer_binary(), "-api", api.said))
        ours, theirs = (_opened(stack, each) for each in (replica.extender, peer.said))
        asked = questions(scale)
        pairs = [(_requests(ours, each), _requests(theirs, each)) for each in asked]
        for here, there in pairs:
            for one, other in zip(here, there, strict=True):
                same_answer(ours.ask(one).body, theirs.ask(other).body)
        agent = _opened(stack, replica.agent)
        changes = requests_of(agent.url, range(min(scale.filters.vms, 100)))

        def change() -> None:
            agent.ask(next(changes))

        measures: list[Callable[[], list[float]]] = []
        for each, (here, there) in zip(asked, pairs, strict=True):
            # A ledger in use changes between filters; the peer is asked of one that stands still.
            measures.append(_measure(ours, here, each.calls, change))
            measures.append(_measure(theirs, there, each.calls, lambda: None))
        say(f"{scale.rounds} rounds")
        rounds = Rounds([api.pid, server.pid, peer.pid, replica.program.pid])
        found = rounds.run(scale.rounds, *measures)
        verify(replica.admin)
        _judge(ours, server.tcp_url, asked)
    for each, mine, reference in zip(asked, found[::2], found[1::2], strict=True):
        yield Figure(
            name=f"filter, {each.name}: p50 against the Go extender",
            ours=mine[0],
            reference=reference[0],
            bound="at most",
            limit=each.limit,
            unit="s",
            noise=rounds.noise,
        )


def _opened(stack: ExitStack, url: str) -> Connection:
    connection = Connection(url)
    stack.callback(connection.close)
    return connection


def _requests(connection: Connection, asked: Question) -> list[bytes]:
    return [request(f"{connection.url}/filter", body) for body in asked.bodies]


def _measure(
    connection: Connection, requests: Sequence[bytes], calls: int, between: Callable[[], None]
) -> Callable[[], list[float]]:
    source = cycle(requests)

    def measure() -> list[float]:
        waits = []
        for _ in range(calls):
            between()
            sent, began = next(source), time.perf_counter()
            answer = connection.ask(sent)
            waits.append(time.perf_counter() - began)
            if answer.status != 200:
                raise WrongAnswer(f"filter: {answer.status} {answer.body[:200]!r}")
        return [statistics.median(waits)]

    return measure


def _judge(connection: Connection, redis_url: str, asked: Sequence[Question]) -> None:
    """Every kind of filter once more, now that nothing changes, against the pods' rows."""
    books = books_of(redis_url)
    for each in asked:
        offered = [node_name(number) for number in range(each.nodes)]
        for number, sent in enumerate(_requests(connection, each)):
            answer = connection.ask(sent)
            judge_filter(books, offered, pod_needs(asked_pod(number)), answer.body)
