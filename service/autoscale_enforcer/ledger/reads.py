"""What the ledger knows; nothing here changes a hold."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from typing import Any

from autoscale_enforcer.ledger.calls import Calls
from autoscale_enforcer.ledger.outcomes import KnownPod, Lapsed
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.model.rows import NodeRow, PodRow

PAIRS_FROM = 5
"""Where the rows begin in an answer of `read_changes`, its word apart."""

SCAN_PORTION = 500
"""Rows of one portion: a few milliseconds of Redis' time, and of the event loop's."""

READ_ENTRIES = 1000
"""Journal entries that come with rows, at most."""


class Reads(Calls):
    """Pods, lapsed holds, everything; nodes are in the `mirror`."""

    async def read_pod(
        self, *, uid: PodUid | None = None, name: PodName | None = None
    ) -> KnownPod | None:
        """What the ledger knows of a pod, by UID or by name; None: nothing, or it is gone."""
        word, *rest = await self._run("read_pod", uid=uid or "", name=name or "")
        if word != "POD":
            return None
        return KnownPod(
            uid=PodUid(rest[0].decode()), row=PodRow.decode(rest[1].decode()), blob=rest[2]
        )

    async def read_pods(self, uids: Sequence[PodUid]) -> list[KnownPod | None]:
        """What the ledger knows of each pod, in the order asked: one round trip."""
        return await asyncio.gather(*(self.read_pod(uid=uid) for uid in uids))

    async def find_lapsed(self, *, limit: int) -> Lapsed:
        """Tentative holds past their deadline, the longest lapsed first, at most `limit`."""
        _, now, *pairs = await self._run("find_lapsed", limit=limit)
        rows = [
            (PodUid(uid.decode()), PodRow.decode(row.decode()))
            for uid, row in zip(pairs[::2], pairs[1::2], strict=True)
            if row
        ]
        return Lapsed(int(now), rows)

    async def find_unlisted(
        self, *, nodes: Iterable[NodeName], uids: Iterable[PodUid]
    ) -> list[str]:
        """Keys that lack what rows of these say must be in them: the server evicts. Else empty.

        `uids` are pods that were seen tentative.
        """
        _, names, versions, *rows = await self._run(
            "find_unlisted", node_names=" ".join(nodes), uids=" ".join(uids)
        )
        holds = any(PodRow.decode(row.decode()).is_tentative for row in rows)
        lacking = {"names": names > 0, "changes": versions > 0, "deadlines": holds}
        return [key for key, is_lacking in lacking.items() if is_lacking]

    async def read_rows(
        self,
        *,
        since: str,
        nodes: Collection[NodeName] = (),
        uids: Collection[PodUid] = (),
        names: Collection[PodName] = (),
    ) -> list[Any]:
        """These rows at one moment, and what the journal says since; as in `read_rows.lua`."""
        _, *parts = await self._run(
            "read_rows",
            since=since,
            entries=READ_ENTRIES,
            node_names=" ".join(nodes),
            uids=" ".join(uids),
            pod_names=" ".join(names),
        )
        return parts

    async def scan(self, part: str, *, most: int | None = None) -> AsyncIterator[list[Any]]:
        """A part of the books in portions, flat, each as it is when it is read.

        `most`: no more portions once there were so many items; the journal comes newest first.
        """
        cursor, seen = "+" if part == "journal" else "0", 0
        while True:
            _, found, *flat = await self._run(
                "scan_books", part=part, cursor=cursor, count=SCAN_PORTION
            )
            yield flat
            cursor, seen = found.decode(), seen + len(flat) // 2
            if cursor == "0" or (most is not None and seen >= most):
                return

    async def read_nodes(self) -> dict[NodeName, NodeRow]:
        """Every node's row as it is; the mirror would miss what no script has changed."""
        _, *answer = await self._run("read_changes", epoch="", since=0)
        pairs = answer[PAIRS_FROM:]
        return {
            NodeName(name.decode()): NodeRow.decode(row.decode())
            for name, row in zip(pairs[::2], pairs[1::2], strict=True)
        }

    async def scan_pods(self) -> dict[PodUid, PodRow]:
        """Every pod's row, read in portions: each as it was at some moment since the call."""
        rows = dict[PodUid, PodRow]()
        async for flat in self.scan("pods"):
            for uid, row in zip(flat[::2], flat[1::2], strict=True):
                rows[PodUid(uid.decode())] = PodRow.decode(row.decode())
        return rows

    async def note_binding(self, uid: PodUid, *, node: NodeName) -> NodeName:
        """File source only: where the pod is bound now; the first Binding counts."""
        _, bound = await self._send(
            "note_binding", {"uid": uid, "node": node}, guarded=False, tells=True
        )
        return NodeName(bound.decode())

    async def read_bindings(self) -> dict[PodUid, NodeName]:
        """File source only: every Binding that was noted."""
        _, *flat = await self._run_unguarded("read_bindings")
        pairs = zip(flat[::2], flat[1::2], strict=True)
        return {PodUid(uid.decode()): NodeName(node.decode()) for uid, node in pairs}
