"""The users in deploy/redis may do what they are for, and nothing else. On real servers."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import redis
from redis.exceptions import NoPermissionError

from autoscale_enforcer.ledger.call import Call
from autoscale_enforcer.ledger.calls import Leadership
from autoscale_enforcer.ledger.durability import Durability, Waiting
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.ledger.pipeline import Pipeline
from autoscale_enforcer.ledger.reading import find_breaches
from autoscale_enforcer.ledger.scripts import load_scripts, scripts_folder
from autoscale_enforcer.ledger.told import Loss, Told
from autoscale_enforcer.ledger.transfer import export_books, import_books
from autoscale_enforcer.model.facts import NodeFact
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.model.rows import said_row
from tests.support.books import SETTINGS, pod, settings_at, vm
from tests.support.manifests import DEPLOY
from tests.support.servers import Kind, SentinelServer, Server
from tests.support.waiting import until

SERVICE, REPLICA, SENTINEL = "autoscale-enforcer", "replica", "sentinel"
N1 = NodeName("n1")
WHY = {"why": "a test"}

OF_PYTHON = {
    *("eval", "evalsha", "script|load", "info", "role", "wait", "config|get", "cluster|slots"),
    "select",
}
"""What our own code sends; everything else comes from scripts."""


def users(name: str) -> dict[str, list[str]]:
    """Rules by user, the hash of "<user>-secret" in the place of each placeholder."""
    found = {}
    for line in (DEPLOY / "redis" / name).read_text().splitlines():
        if line.startswith("user "):
            _, user, *rules = line.split()
            secret = "#" + hashlib.sha256(f"{user}-secret".encode()).hexdigest()
            found[user] = [secret if rule.startswith("#SHA256_") else rule for rule in rules]
    return found


def give_users(server: Server, name: str) -> None:
    """As an aclfile does, and one for the test itself."""
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "test", "on", "nopass", "~*", "&*", "+@all")
        for user, rules in users(name).items():
            client.execute_command("ACL", "SETUSER", user, *rules)


def as_user(server: Server, user: str) -> redis.Redis:
    path = str(server.socket)
    secret = f"{user}-secret"
    return redis.Redis(unix_socket_path=path, username=user, password=secret, protocol=2)


@pytest.fixture(params=["valkey", pytest.param("redis", marks=pytest.mark.long)])
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture
def server(kind: Kind) -> Iterator[Server]:
    with Server(kind, "--appendonly", "yes", tcp=True) as server:
        give_users(server, "users.acl")
        yield server


@pytest.fixture
def scripts_run(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of the scripts that were sent since."""
    seen: set[str] = {"check_ledger"}  # in front of each pipeline
    send = Pipeline.send

    def noted(pipeline: Pipeline, call: Call) -> None:
        seen.add(call.script.name)
        send(pipeline, call)

    monkeypatch.setattr(Pipeline, "send", noted)
    return seen


@pytest.fixture
async def ledger(server: Server) -> AsyncIterator[Ledger]:
    """Of the service's user, in another database than the first."""
    url = server.tcp_url.replace("redis://", f"redis://{SERVICE}@").removesuffix("/0") + "/1"
    settings = settings_at(url)
    connection = replace(settings.connection, password=lambda: f"{SERVICE}-secret")
    ledger = Ledger.open(replace(settings, connection=connection))
    yield ledger
    await ledger.close()


async def test_service_may_do_all_that_the_ledger_does(
    ledger: Ledger, scripts_run: set[str]
) -> None:
    leader = Leadership("token")
    await ledger.claim("a-cluster")
    await ledger.take_lease(holder="us", token=leader.token, lifetime=timedelta(hours=1))
    building = await ledger.begin_build(leader)
    assert building is not None
    node = NodeFact(uid="x", name=N1, resource_version="1", allocatable=Resources(9000, 900))
    await ledger.put_node(node, capacity=node.allocatable, config_version="1", leader=building)
    assert await ledger.load_pods([], leader=building) == []
    await ledger.publish_build(building)
    content = await export_books(ledger)
    await hold_and_release(ledger, leader)
    await ledger.put_config(version="1", text=b"{}")
    await ledger.read_config()
    await ledger.note_binding(PodUid("v1"), node=N1)
    await ledger.read_bindings()
    await ledger.freeze_grants(N1, context=WHY)
    await ledger.thaw_grants(N1, context=WHY)
    asked = await ledger.ask_compare(context=WHY)
    await ledger.read_compare()
    await ledger.note_compared(leader, asked=asked, replica="us", mended=0)
    await ledger.settle_ledger(leader)
    await ledger.trim_changes(leader, before=1)
    ledger.note_loss(Told("an-id", 7), Loss.DROPPED)
    await ledger.mirror.refresh()
    await ledger.find_lapsed(limit=1)
    assert await ledger.find_unlisted(nodes=[N1], uids=[]) == []
    await ledger.scan_pods()
    assert await find_breaches(ledger) == []
    await ledger.lose_books(leader, why="a test")
    await ledger.drop_lease(token=leader.token)
    await import_books(ledger, content, replace=True)
    with_schema: Any = {"from": 7, "to": 8, "new_epoch": "e", "most": 1}
    lists = ("node_fields", "node_wanted", "pod_fields", "pod_wanted")
    await ledger._run_unguarded("migrate_ledger", **with_schema, **dict.fromkeys(lists, ""))

    assert load_scripts().keys() - scripts_run == set()


async def hold_and_release(ledger: Ledger, leader: Leadership) -> None:
    held, bound = PodUid("u1"), PodUid("v1")
    stamp = await ledger.stamp()
    await ledger.reserve_pod(held, node=N1, said=said_row(pod(held)), stamp=stamp)
    await ledger.unreserve_pod(held, node=N1, stamp=stamp)
    await ledger.delete_pod(held, name=PodName("default/u1"), leader=leader)
    said = said_row(pod(bound, vm=vm()))
    await ledger.reserve_pod(bound, node=N1, said=said, stamp=stamp, to="binding")
    await ledger.abandon_bind(bound, node=N1, stamp=stamp - 1)
    await ledger.confirm_bind(bound, node=N1)
    await ledger.request_permit(
        PodName("default/v1"),
        asked=Resources(2000, 200),
        factor=Resources(250, 10),
        last_permit=None,
        stamp=await ledger.stamp(),
    )
    await ledger.put_pod(pod(bound, rv="2", node=N1, vm=vm()), leader=leader)
    await ledger.read_pod(uid=bound)
    await ledger.recount_node(N1, version=0, uids=[bound], leader=leader)
    await ledger.release_leftover(bound, context=WHY)
    await ledger.delete_node(N1, uid="x", leader=leader)


def test_service_may_run_what_its_code_and_scripts_need_and_no_more() -> None:
    texts = [path.read_text() for path in scripts_folder().rglob("*.lua")]
    calls = {
        name.lower() for text in texts for name in re.findall(r"redis\.call\(\s*'([A-Z]+)'", text)
    }

    allowed = {rule[1:] for rule in users("users.acl")[SERVICE] if rule.startswith("+")}

    assert allowed == calls | OF_PYTHON


@pytest.mark.parametrize(
    "words",
    [
        "FLUSHALL",
        "FLUSHDB",
        "KEYS *",
        "SCAN 0",
        "CONFIG SET maxmemory 1",
        "CONFIG REWRITE",
        "SHUTDOWN",
        "REPLICAOF NO ONE",
        "ACL LIST",
        "SCRIPT FLUSH",
        "SCRIPT KILL",
        "CLIENT KILL TYPE normal",
        "MONITOR",
        "SAVE",
        "GET ae:{t}:nodes",
        "SET ae:{t}:nodes x",
        "HSET another:{t}:nodes a b",
        "DEL sessions",
        "PUBLISH a b",
    ],
)
def test_service_may_do_nothing_else(server: Server, words: str) -> None:
    with as_user(server, SERVICE) as client, pytest.raises(NoPermissionError):
        client.execute_command(*words.split())


def test_script_of_the_service_may_not_do_more_than_its_user(server: Server) -> None:
    with as_user(server, SERVICE) as client:
        for text in ("redis.call('FLUSHALL')", "redis.call('HSET', 'other', 'a', 'b')"):
            with pytest.raises(redis.ResponseError, match=r"(?i)permission|acl|user executing"):
                client.eval(text, 0)


@pytest.mark.parametrize("name", ["users.acl", "sentinel-users.acl"])
def test_nobody_else_gets_in(name: str, kind: Kind) -> None:
    with SentinelServer(kind) if name.startswith("sentinel") else Server(kind) as server:
        give_users(server, name)

        with server.client() as client, pytest.raises(redis.AuthenticationError):
            client.ping()


def test_waiting_for_the_disk_needs_the_right_that_is_named(server: Server, kind: Kind) -> None:
    text = (DEPLOY / "redis" / "users.acl").read_text()

    assert f"+{Waiting(durability=Durability.AOF).command[0].lower()}" in text.split("\nuser ")[0]


@pytest.fixture
def group(kind: Kind) -> Iterator[tuple[Server, Server, SentinelServer]]:
    """A primary, its replica and a Sentinel, each in its own user's clothes."""
    with ExitStack() as stack:
        now = ("--repl-diskless-sync-delay", "0", "--appendonly", "yes")
        primary, replica = (stack.enter_context(Server(kind, *now, tcp=True)) for _ in range(2))
        sentinel = stack.enter_context(SentinelServer(kind, tcp=True))
        for server in (primary, replica):
            give_users(server, "users.acl")
            with as_test(server) as client:
                client.config_set("masteruser", REPLICA)
                client.config_set("masterauth", f"{REPLICA}-secret")
        follow(replica, primary)
        sentinel.watch(primary)
        with sentinel.client() as client:
            for option, value in (("auth-user", SENTINEL), ("auth-pass", f"{SENTINEL}-secret")):
                client.execute_command("SENTINEL", "SET", "main", option, value)
            client.execute_command("SENTINEL", "SET", "main", "down-after-milliseconds", "2000")
        give_users(sentinel, "sentinel-users.acl")
        yield primary, replica, sentinel


def follow(replica: Server, primary: Server) -> None:
    with as_test(replica) as client:
        client.replicaof("127.0.0.1", primary.port)
        until(lambda: client.info("replication")["master_link_status"] == "up")


def as_test(server: Server) -> redis.Redis:
    return redis.Redis(
        unix_socket_path=str(server.socket), username="test", password="x", protocol=2
    )


async def test_failover_works_with_these_users(
    group: tuple[Server, Server, SentinelServer],
) -> None:
    primary, replica, sentinel = group
    connection = replace(
        SETTINGS.connection,
        url=f"redis+sentinel://{SERVICE}@127.0.0.1:{sentinel.port}/main",
        password=lambda: f"{SERVICE}-secret",
        sentinel_user=SERVICE,
        sentinel_password=lambda: f"{SERVICE}-secret",
    )
    waiting = Waiting(durability=Durability.REPLICA, timeout=timedelta(seconds=10))
    ledger = Ledger.open(replace(SETTINGS, connection=connection, waiting=waiting))
    with as_test(sentinel) as client:
        until(lambda: client.sentinel_master("main")["num-slaves"] == 1)
        until(lambda: client.sentinel_master("main")["flags"] == "master")
    before = await ledger.note_binding(PodUid("u1"), node=N1)

    primary.kill()
    with as_test(sentinel) as client:
        until(lambda: client.sentinel_master("main")["port"] == replica.port)

    other = Ledger.open(replace(SETTINGS, connection=connection))
    after = await other.note_binding(PodUid("u1"), node=NodeName("n2"))
    assert (before, after) == (N1, N1)
    await ledger.close()
    await other.close()
