"""Agents' requests that change something, over 32 connections, against the bare handler."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

from bench.agents import judge, requests_of, split
from bench.figures import Figure, Rounds
from bench.judge import verify
from bench.load import Connection, drive
from bench.programs import api_server, bare_handler, live_cluster, redis_server, replicas
from bench.redis_alone import RedisAlone
from bench.scale import Say, Scale

CONNECTIONS = 32

Measure = Callable[[], list[float]]


def run(scale: Scale, say: Say) -> Iterator[Figure]:
    """Rate and p99 of one process and of two, and how fast Redis and the generator are alone."""
    with ExitStack() as stack:
        say("starting replicas")
        api = stack.enter_context(api_server(scale.agents))
        flags = stack.enter_context(live_cluster(api.said))
        servers = [stack.enter_context(redis_server()) for _ in range(3)]
        (one,) = stack.enter_context(replicas(servers[0].tcp_url, "kubernetes", *flags))
        two = stack.enter_context(replicas(servers[1].tcp_url, "kubernetes", *flags, count=2))
        bare = stack.enter_context(bare_handler())
        alone = stack.enter_context(RedisAlone(servers[2], scale.agents))
        pids = [api.pid, bare.pid, *(each.pid for each in servers)]
        rounds = Rounds([*pids, *(each.program.pid for each in (one, *two))])
        measures: list[Measure] = [
            _measure(stack, one.agent, scale, is_ours=True),
            _measure(stack, bare.said, scale, is_ours=False),
            _measure(stack, two[0].agent, scale, is_ours=True),
            partial(alone.rates, scale.seconds),
        ]
        measures[0]()  # the first requests of a process are its slowest
        say(f"{scale.rounds} rounds")
        ours, limit, both, redis = rounds.run(scale.rounds, *measures)
        for each in (one, two[0]):
            verify(each.admin)
        alone.verify()
    name = "agents, one process"
    noise = rounds.noise
    yield Figure(
        name=f"{name}: rate against the bare handler",
        ours=ours[0],
        reference=limit[0],
        bound="at least",
        limit=0.80,
        unit="/s",
        noise=noise,
    )
    yield Figure(
        name=f"{name}: p99 against the bare handler",
        ours=ours[1],
        reference=limit[1],
        bound="at most",
        limit=2.0,
        unit="s",
        noise=noise,
    )
    yield Figure(
        name="agents, two processes: rate against one",
        ours=both[0],
        reference=ours[0],
        bound="at least",
        limit=1.0,
        unit="/s",
        noise=noise,
    )
    yield Figure(
        name=f"{name}: rate against Redis alone, EVALSHA in pipelines of {CONNECTIONS}",
        ours=ours[0],
        reference=redis[0],
        bound="shown",
        unit="/s",
    )
    yield Figure(
        name="load generator: its ceiling against the bare handler's rate",
        ours=limit[2],
        reference=limit[0],
        bound="shown",
        unit="/s",
    )


def _measure(stack: ExitStack, url: str, scale: Scale, *, is_ours: bool) -> Measure:
    connections = []
    for _ in range(CONNECTIONS):
        connection = Connection(url)
        stack.callback(connection.close)
        connections.append(connection)
    requests = [requests_of(url, each) for each in split(scale.agents.vms, CONNECTIONS)]

    def measure() -> list[float]:
        began = time.process_time()
        load = drive(connections, requests, seconds=scale.seconds)
        ceiling = len(load.waits) / (time.process_time() - began)
        if is_ours:
            judge(load)
        return [load.rate, load.at(0.99), ceiling]

    return measure
