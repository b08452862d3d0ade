"""What the cluster says: always accepted, even over capacity."""

from __future__ import annotations

from collections.abc import Iterable

from autoscale_enforcer.ledger.calls import Calls, Context, Leadership, pack
from autoscale_enforcer.ledger.kept import pack_fact, pack_whole
from autoscale_enforcer.ledger.outcomes import Fact, Recount
from autoscale_enforcer.model.facts import NodeFact, PodFact
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.model.resources import NOTHING, Resources
from autoscale_enforcer.model.rows import NO_WORD, said_row


class Facts(Calls):
    """Pods and nodes as the cluster has them, and their ends."""

    async def put_pod(
        self,
        fact: PodFact,
        *,
        leader: Leadership | None,
        ignored: bool = False,
        context: Context | None = None,
    ) -> Fact:
        """Book what the cluster says of a pod and its VM.

        Without a leadership it only adds what is missing. Safe to repeat, ever.
        """
        approved = fact.vm.approved if fact.vm and leader and leader.build_epoch else NOTHING
        keep = pack_whole if self.settings.keeps_whole_facts else pack_fact
        word, *_ = await self._fact(
            "put_pod",
            leader,
            context,
            uid=fact.uid,
            said=said_row(fact, ignored=ignored).encode(),
            finished=int(fact.finished),
            deleting=int(fact.deleting),
            approved_cpu=approved.cpu,
            approved_mem=approved.mem,
            blob=keep(fact),
        )
        return Fact(word)

    async def load_pods(
        self, facts: Iterable[tuple[PodFact, bool]], *, leader: Leadership
    ) -> list[PodUid] | None:
        """Put pods that have not finished beside the books, each with whether it is ignored.

        What is there already is passed over. Those that are left for `put_pod`, for their name is
        another pod's; None if fenced. Safe to repeat.
        """
        lines, blobs = [], []
        for fact, ignored in facts:
            approved, blob = fact.vm.approved if fact.vm else NOTHING, pack_fact(fact)
            row = said_row(fact, ignored=ignored).encode()
            lines.append(f"{fact.uid} {approved.cpu} {approved.mem} {len(blob)} {row}")
            blobs.append(blob)
        word, *left = await self._run_unguarded(
            "load_pods",
            epoch=leader.build_epoch,
            token=leader.token,
            rows="\n".join(lines),
            blobs=b"".join(blobs),
        )
        return [PodUid(uid.decode()) for uid in left] if word == "LOADED" else None

    async def delete_pod(
        self, uid: PodUid, *, name: PodName, leader: Leadership, context: Context | None = None
    ) -> Fact:
        """Book that a pod is gone for good. Safe to repeat."""
        word, *_ = await self._fact("delete_pod", leader, context, uid=uid, name=name)
        return Fact(word)

    async def put_node(
        self,
        fact: NodeFact,
        *,
        capacity: Resources,
        config_version: str,
        leader: Leadership | None,
        context: Context | None = None,
    ) -> Fact:
        """Book a node's capacity (allocatable minus `system`); taken even where it ends over it.

        Without a leadership it only adds what is missing. Safe to repeat, ever.
        """
        word, *_ = await self._fact(
            "put_node",
            leader,
            context,
            name=fact.name,
            uid=fact.uid or NO_WORD,
            rv=fact.resource_version or NO_WORD,
            config=config_version or NO_WORD,
            cap_cpu=capacity.cpu,
            cap_mem=capacity.mem,
            blob=pack({"labels": fact.labels}),
        )
        return Fact(word)

    async def delete_node(
        self, name: NodeName, *, uid: str, leader: Leadership, context: Context | None = None
    ) -> Fact:
        """Book that a node has left; its pods go on counting. Safe to repeat."""
        word, *_ = await self._fact("delete_node", leader, context, name=name, uid=uid or NO_WORD)
        return Fact(word)

    async def recount_node(
        self,
        name: NodeName,
        *,
        version: int,
        uids: Iterable[PodUid],
        leader: Leadership,
        context: Context | None = None,
    ) -> Recount:
        """Make a node's sums those of its pods, unless it is past the version of its row.

        `uids` are its pods, read after that row: whatever came or went since has raised the
        version. Safe to repeat.
        """
        word, *_ = await self._change(
            "recount_node",
            context,
            token=leader.token,
            name=name,
            version=version,
            uids=" ".join(uids),
        )
        return Recount(word)
