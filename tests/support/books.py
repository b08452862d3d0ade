"""A ledger on a server of any kind, short ways to bring it into a state, and all its keys as text.

Tests say what changed as lines, one a row, field or entry, in the order of the key catalogue:

    nodes n1 sums=1000/100 pods=1 version=2
    pods u1 name=default/u1 node=n1 stage=held rv=1 holds=1000/100 deadline=+30min stamp=10
    journal reserve u1 -->n1 |held 1000 100 1000 100 1000 100 0 0 @ 1000 100 4000 800

CPU and memory are one word, `sums` is reserved and committed where they are alike, `holds` amount,
charge and asked. Only what changed is there, `gone` for what was removed. A journal entry says what
was done, to whom, from where to where, before|after, and @ how the node stands.
"""

from __future__ import annotations

import re
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any, Literal

import msgpack
import redis.asyncio

from autoscale_enforcer.ledger.call import Call
from autoscale_enforcer.ledger.calls import Leadership, LedgerSettings
from autoscale_enforcer.ledger.connection import ConnectionSettings
from autoscale_enforcer.ledger.keys import BESIDE, BOOKS, Keys
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.ledger.outcomes import (
    Confirm,
    Fact,
    PermitAnswer,
    Recount,
    Release,
    ReserveAnswer,
)
from autoscale_enforcer.ledger.pipeline import Pipeline
from autoscale_enforcer.ledger.scripts import Script, load_scripts
from autoscale_enforcer.model.facts import NodeFact, PodFact, VmFact
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.model.resources import Overcommit, Resources
from autoscale_enforcer.model.rows import NO_WORD, NodeRow, PodRow, said_row
from tests.support.prelude import with_prelude

Flavour = Literal["valkey", "prelude", "fakeredis", "redis"]
"""A kind of server; `prelude` is Valkey with scripts that refuse undeclared keys."""

CLUSTER = "t"
EPOCH, TOKEN = "epoch1", "token1"
SETTINGS = LedgerSettings(
    # So long may a busy machine keep a server from answering.
    connection=ConnectionSettings(url="unix:///not-used", socket_timeout=20),
    call_budget=timedelta(seconds=50),
    cluster=CLUSTER,
    hold_lifetime=timedelta(minutes=30),
    settle_after=timedelta(0),
)
GIB = 1 << 30

_ALIKE = {"holds": ("amount", "charge", "asked"), "sums": ("reserved", "committed")}
_A_MOMENT_MS = 30_000

Dump = dict[str, Any]


def settings_at(url: str, **more: Any) -> LedgerSettings:
    """`SETTINGS` for the server of that address; `more` are other words of them."""
    return replace(SETTINGS, connection=replace(SETTINGS.connection, url=url), **more)


@dataclass(frozen=True, slots=True)
class Given:
    """The connector that always finds the client it was given."""

    client: redis.asyncio.Redis

    async def connect(self) -> redis.asyncio.Redis:
        return self.client

    async def close(self) -> None:
        """The client is closed by who made it."""


def scripts_for(flavour: Flavour) -> dict[str, Script]:
    """The scripts as a server of that flavour runs them."""
    scripts = load_scripts(shebang=flavour != "fakeredis")
    if flavour != "prelude":
        return scripts
    return {name: with_prelude(script) for name, script in scripts.items()}


def pod(
    uid: str,
    *,
    name: str = "",
    rv: str = "1",
    node: str | None = None,
    cpu: int = 1000,
    mem: int = 100,
    vm: VmFact | None = None,
    **more: Any,
) -> PodFact:
    """What the API says of a pod in namespace `default`, named as its UID unless told otherwise."""
    return PodFact(
        uid=PodUid(uid),
        namespace="default",
        name=name or uid,
        resource_version=rv,
        node=NodeName(node) if node else None,
        requests=Resources(cpu, mem),
        vm=vm,
        **more,
    )


def vm(
    cpu: int = 1000,
    mem: int = 100,
    *,
    autoscaling: bool = True,
    most: tuple[int, int] = (8000, 800),
    over: tuple[int, int] = (1000, 1000),
    **more: Any,
) -> VmFact:
    """What the API says of a VM; `cpu` and `mem` are its use."""
    return VmFact(
        name="vm",
        autoscaling=autoscaling,
        use=Resources(cpu, mem),
        minimum=Resources(1, 1),
        maximum=Resources(*most),
        slot_bytes=1,
        overcommit=Overcommit(*over),
        **more,
    )


class Books:
    """The ledger under test, and the raw keys behind it."""

    def __init__(self, client: redis.asyncio.Redis, flavour: Flavour) -> None:
        self.raw: Any = client  # redis-py types each answer as any that any server may give
        self.flavour = flavour
        self.keys = Keys(CLUSTER)
        self.scripts = scripts_for(flavour)
        self.watches = flavour != "fakeredis"
        self.ledger = self.another()
        self.leader = Leadership(TOKEN)

    def another(self, settings: LedgerSettings = SETTINGS) -> Ledger:
        """A ledger over the same keys, as another replica has it; the caller closes it."""
        pipeline = Pipeline(
            Given(self.raw),
            self.keys,
            self.scripts,
            watch_replid=self.watches,
            journal_length=settings.journal_length,
            call_budget=settings.call_budget,
            waiting=settings.waiting,
        )
        pipeline.start()
        return Ledger(settings, pipeline)

    async def open(self, *, settle_ms: int = 0) -> None:
        """Empty books in their first epoch, led by us."""
        await self.ledger.take_lease(holder="us", token=TOKEN, lifetime=timedelta(hours=1))
        await self.run("begin_build", token=TOKEN, epoch=EPOCH)
        await self.run(
            "publish_build",
            token=TOKEN,
            state="settled",
            settle_after_ms=settle_ms,
            watch=int(self.watches),
            most=1000,
        )

    async def run(
        self, script: str, *, building: bool = False, **arguments: str | int | bytes
    ) -> list[Any]:
        """What a script answers to these very arguments."""
        call = Call(self.scripts[script], lambda _: arguments, guarded=False, building=building)
        return await self.ledger.pipeline.run(call)

    # What happens to the books

    async def new_epoch(self, name: str = "epoch2", *, state: str = "settled") -> None:
        """The same books in another epoch, as after a promotion."""
        await self.raw.hset(self.keys.key("meta"), mapping={"epoch": name, "state": state})
        await self.ledger.look()

    async def settles_at(self, seconds: int) -> None:
        """Nodes with VMs wait for their agents for so long from now."""
        moment = int((time.time() + seconds) * 1000)
        await self.raw.hset(self.keys.key("meta"), "settle_ms", str(moment))

    async def put_node(
        self,
        name: str,
        cpu: int = 4000,
        mem: int = 800,
        *,
        rv: str = "1",
        config: str = "1",
        uid: str = "",
        additive: bool = False,
        leader: Leadership | None = None,
    ) -> Fact:
        fact = NodeFact(
            uid=uid or f"uid-{name}",
            name=NodeName(name),
            resource_version=rv,
            allocatable=Resources(cpu, mem),
        )
        return await self.ledger.put_node(
            fact,
            capacity=Resources(cpu, mem),
            config_version=config,
            leader=None if additive else leader or self.leader,
        )

    async def delete_node(
        self, name: str, *, uid: str = "", leader: Leadership | None = None
    ) -> Fact:
        return await self.ledger.delete_node(
            NodeName(name), uid=uid or f"uid-{name}", leader=leader or self.leader
        )

    async def recount(
        self,
        name: str,
        uids: Sequence[str],
        *,
        behind: int = 0,
        leader: Leadership | None = None,
    ) -> Recount:
        """Hold a node's sums against these pods, by a row so many versions old."""
        version = (await self.node_row(name)).version - behind
        return await self.ledger.recount_node(
            NodeName(name),
            version=version,
            uids=[PodUid(uid) for uid in uids],
            leader=leader or self.leader,
        )

    async def node_row(self, name: str) -> NodeRow:
        """The row of a node; one of version 0 where there is none."""
        text = await self.raw.hget(self.keys.key("nodes"), name)
        return NodeRow.decode(text.decode()) if text else NodeRow()

    async def falsify(self, name: str, **fields: Any) -> None:
        """Change a node's row behind the scripts' back."""
        row = replace(await self.node_row(name), **fields)
        await self.raw.hset(self.keys.key("nodes"), name, row.encode())

    async def put_pod(
        self,
        fact: PodFact,
        *,
        ignored: bool = False,
        additive: bool = False,
        leader: Leadership | None = None,
    ) -> Fact:
        return await self.ledger.put_pod(
            fact, leader=None if additive else leader or self.leader, ignored=ignored
        )

    async def delete_pod(
        self, uid: str, *, name: str = "", leader: Leadership | None = None
    ) -> Fact:
        return await self.ledger.delete_pod(
            PodUid(uid), name=PodName(f"default/{name or uid}"), leader=leader or self.leader
        )

    async def reserve(
        self,
        fact: PodFact | str,
        node: str = "n1",
        *,
        stamp: int = 10,
        to: Literal["held", "binding"] = "held",
        ignored: bool = False,
        **more: Any,
    ) -> ReserveAnswer:
        """With a UID only: what the ledger knows of the pod."""
        return await self.ledger.reserve_pod(
            PodUid(fact) if isinstance(fact, str) else fact.uid,
            node=NodeName(node),
            said=None if isinstance(fact, str) else said_row(fact, ignored=ignored),
            stamp=stamp,
            to=to,
            **more,
        )

    async def begin_bind(
        self, fact: PodFact | str, node: str = "n1", *, stamp: int = 10, **more: Any
    ) -> ReserveAnswer:
        return await self.reserve(fact, node, stamp=stamp, to="binding", **more)

    async def unreserve(self, uid: str, node: str = "n1", *, stamp: int = 10) -> Release:
        return await self.ledger.unreserve_pod(PodUid(uid), node=NodeName(node), stamp=stamp)

    async def confirm(self, fact: PodFact | str, node: str = "n1") -> Confirm:
        said = None if isinstance(fact, str) else said_row(fact)
        uid = PodUid(fact) if isinstance(fact, str) else fact.uid
        return await self.ledger.confirm_bind(uid, node=NodeName(node), said=said)

    async def abandon(self, uid: str, node: str = "n1", *, stamp: int = 10) -> Release:
        return await self.ledger.abandon_bind(PodUid(uid), node=NodeName(node), stamp=stamp)

    async def request(
        self,
        uid: str,
        cpu: int,
        mem: int = 100,
        *,
        unit: tuple[int, int] = (250, 10),
        last: tuple[int, int] | None = None,
        stamp: int = 10,
    ) -> PermitAnswer:
        return await self.ledger.request_permit(
            PodName(f"default/{uid}"),
            asked=Resources(cpu, mem),
            factor=Resources(*unit),
            last_permit=Resources(*last) if last else None,
            stamp=stamp,
        )

    # What the books say

    async def pod(self, uid: str) -> PodRow | None:
        text = await self.raw.hget(self.keys.key("pods"), uid)
        return PodRow.decode(text.decode()) if text else None

    async def amount(self, uid: str) -> tuple[int, int]:
        row = await self.pod(uid)
        return (row.cpu, row.mem) if row and row.holds else (0, 0)

    async def node(self, name: str = "n1") -> NodeRow:
        text = await self.raw.hget(self.keys.key("nodes"), name)
        return NodeRow.decode(text.decode())

    async def reserved(self, name: str = "n1") -> tuple[int, int]:
        row = await self.node(name)
        return row.reserved_cpu, row.reserved_mem

    async def dump(self) -> Dump:
        """Every key of the database, catalogue or not, as it is."""
        return {key.decode(): await self._content(key) for key in await self.raw.keys("*")}

    async def changes(self, before: Dump) -> str:
        """What is different since `before`, as lines."""
        return "\n".join(_lines(self.keys, before, await self.dump()))

    async def _content(self, key: bytes) -> Any:
        kind = (await self.raw.type(key)).decode()
        if kind == "hash":
            return await self.raw.hgetall(key)
        if kind == "zset":
            return dict(await self.raw.zrange(key, 0, -1, withscores=True))
        if kind == "stream":
            return dict(await self.raw.xrange(key))
        return await self.raw.get(key)


def lines(text: str) -> str:
    """Expected changes: what is indented further belongs to the line before."""
    return re.sub(r"\n {2,}", " ", textwrap.dedent(text).strip())


def _lines(keys: Keys, before: Dump, after: Dump) -> list[str]:
    names = (*BOOKS, *BESIDE, *(f"new_{name}" for name in BOOKS))
    short = {keys.key(name): name for name in names}
    found: list[str] = []
    for key in [*short, *sorted((before.keys() | after.keys()) - short.keys())]:
        old, new = before.get(key, {}), after.get(key, {})
        name = short.get(key, key)
        for item in sorted(old.keys() | new.keys()):
            if not _is_alike(name, old.get(item), new.get(item)):
                text = _line(name.removeprefix("new_"), item, old.get(item), new.get(item))
                found += [f"{name} {text}"] if text else []
    return found


def _is_alike(key: str, old: Any, new: Any) -> bool:
    """Equal; moments a little apart count as one, for they come from the server's clock."""
    if old is not None and new is not None and key.removeprefix("new_") in ("deadlines", "gone"):
        return bool(abs(old - new) < _A_MOMENT_MS)
    return bool(old == new)


def _line(key: str, item: bytes, old: Any, new: Any) -> str:
    if key == "journal":
        return _journal(new)
    if new is None:
        return f"{item.decode()} gone"
    if key in ("nodes", "pods"):
        changed = _row(key, old, new)
        return f"{item.decode()} {changed}" if changed else ""
    return f"{item.decode()} {_value(key, new)}"


def _value(key: str, value: Any) -> str:
    if key == "facts":
        return "blob"
    if key == "freezes":
        return "noted"
    if key in ("deadlines", "gone"):
        return _minutes(int(value))
    return f"{value:.0f}" if isinstance(value, float) else value.decode()


def _minutes(moment_ms: int) -> str:
    minutes = round((moment_ms / 1000 - time.time()) / 60)
    return f"{minutes:+}min" if minutes else "now"


def _journal(entry: dict[bytes, bytes] | None) -> str:
    if entry is None:
        return "gone"
    said = {name.decode(): value for name, value in entry.items()}
    context = said.pop("context")
    text = {name: value.decode() for name, value in said.items()}
    who = text["uid"] if text["uid"] != NO_WORD else text["name"]
    room = f" @ {text['room']}" if text.get("room") else ""
    noted = f" {msgpack.unpackb(context)}" if context not in (b"", msgpack.packb({})) else ""
    return (
        f"{text['what']} {who} {text['from']}->{text['node']} "
        f"{text['before']}|{text['after']}{room}{noted}"
    )


def _row(key: str, old: bytes | None, new: bytes) -> str:
    kind: type[NodeRow | PodRow] = NodeRow if key == "nodes" else PodRow
    empty: NodeRow | PodRow = NodeRow() if key == "nodes" else PodRow(name="")
    was, now = kind.decode(old.decode()) if old else empty, kind.decode(new.decode())
    words = {spec.name: (getattr(was, spec.name), getattr(now, spec.name)) for spec in fields(now)}
    return " ".join(f"{name}={value}" for name, value in _grouped(words).items())


def _grouped(words: dict[str, tuple[Any, Any]]) -> dict[str, str]:
    """The changed fields: cpu and mem as one, and one word for those that are always alike."""
    values: dict[str, tuple[Any, Any]] = {}
    for name, pair in words.items():
        stem = name.removesuffix("_cpu").removesuffix("_mem")
        stem = "amount" if name in ("cpu", "mem") else stem
        value = values.get(stem)
        values[stem] = ((value[0], pair[0]), (value[1], pair[1])) if value else pair
    shown = {
        name: f"{new[0]}/{new[1]}" if isinstance(new, tuple) else str(new)
        for name, (old, new) in values.items()
        if not (_is_alike("deadlines", old, new) if name == "deadline" else old == new)
    }
    if int(shown.get("deadline", 0)):
        shown["deadline"] = _minutes(int(shown["deadline"]))
    return _merged(shown)


def _merged(shown: dict[str, str]) -> dict[str, str]:
    for word, alike in _ALIKE.items():
        if all(name in shown for name in alike) and len({shown[name] for name in alike}) == 1:
            first = alike[0]
            shown = {word if n == first else n: v for n, v in shown.items() if n not in alike[1:]}
    return shown
