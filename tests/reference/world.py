"""All that the ledger's keys hold: books, a build beside them, a lease, and who owns them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from autoscale_enforcer.ledger.outcomes import Keep, Lead, Order
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.model.rows import NodeRow, PodRow, newer
from tests.reference.books import Books
from tests.reference.node import Node

HAPPENINGS = ("promotion", "loss", "row_loss", "lease_end", "drift", "older", "newer")
"""What befalls the server itself; no script. After a drift each sum of the first node is one more
than it should be. The rows become those of an older release, or a newer release comes, or is gone
again."""

SCHEMA = 1
"""The one that these releases know; `older` makes it 0, whose pods have no stamp."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A pod of the first list."""

    uid: PodUid
    said: PodRow
    approved: Resources
    blob: bytes


@dataclass(slots=True)
class World:
    """What is in the keys of one Kubernetes cluster's ledger."""

    live: Books | None = None
    """None: unbuilt."""
    building: Books | None = None
    lease: tuple[str, str] | None = None
    """Holder and token."""
    lost_ms: int = 0
    """When the leader found that there are no books; 0: there are, or it has not looked."""
    is_promoted: bool = False
    """Another server answers than the books were last seen on."""
    owner: str = ""
    """UID of the cluster whose ledger this is."""
    config: tuple[str, str] | None = None
    """Version and text of the last good config."""
    bindings: dict[PodUid, NodeName] = field(default_factory=dict)
    """File source only."""
    freezes: dict[str, str] = field(default_factory=dict)
    """Node, or `*`, to the note of its freeze: since when (ms), and the operator's words."""
    schema: int = SCHEMA
    compare: dict[str, str] = field(default_factory=dict)
    """When a compare was asked for, and how the last request was answered."""

    def happen(self, what: str) -> None:
        """One of HAPPENINGS."""
        match what:
            case "promotion":
                self.is_promoted = True
            case "lease_end":
                self.lease = None
            case "row_loss":
                self.live = None
            case "drift" if self.live:
                self.live.drifted = min(self.live.nodes)
            case "newer":
                self.schema = SCHEMA if self.schema > SCHEMA else SCHEMA + 1
            case "older" if self.live:
                self.schema = SCHEMA - 1
                pods = self.live.pods
                self.live.pods = {uid: replace(row, stamp=0) for uid, row in pods.items()}
            case "loss":
                self.live = self.building = self.lease = self.config = None
                self.lost_ms = 0
                self.schema = SCHEMA
                self.owner, self.bindings, self.freezes, self.compare = "", {}, {}, {}

    def look(self, *, new_epoch: str) -> str:
        """The guard; a new server begins a new epoch, unless other rows than ours are there."""
        if self.schema > SCHEMA:
            return "NEWER"
        if self.live is not None and self.schema < SCHEMA:
            return "OLDER"
        if self.live is None:
            return "UNBUILT"
        if self.is_promoted:
            self.live.begin_epoch(new_epoch)
            self.is_promoted = False
        return "SUSPECT" if self.live.is_suspect else "SETTLED"

    def migrate(self, from_: int, to: int, *, new_epoch: str, fits: bool) -> Lead:
        """Rows of the older release are those of this one, in an epoch of their own.

        Unless they are none of that release: `fits` says of nodes whether they are.
        """
        if self.live is None or self.schema != from_:
            return Lead.NOTHING
        if self.live.nodes and not fits:
            self.live = None
            return Lead.GIVEN_UP
        self.live.rename_epoch(new_epoch)
        self.schema = to
        return Lead.MIGRATED

    # Leading

    def leads(self, token: str) -> bool:
        """Whoever has this token leads."""
        return self.lease is not None and self.lease[1] == token

    def take_lease(self, holder: str, token: str) -> Lead:
        """Lead, or go on leading."""
        if self.lease and not self.leads(token):
            return Lead.HELD
        self.lease = (holder, token)
        if self.live:
            self.live.token = token
        return Lead.LEADER

    def drop_lease(self, token: str) -> Lead:
        """Lead no more."""
        if not self.leads(token):
            return Lead.NOTHING
        self.lease = None
        return Lead.DROPPED

    # Building

    def lose_books(self, token: str, *, now: int) -> Lead:
        """There are no books any more."""
        if not self.leads(token):
            return Lead.FENCED
        self.lost_ms = self.lost_ms or now // 1000
        self.live = None
        return Lead.LOST

    def begin_build(self, *, token: str, epoch: str) -> Lead:
        """Books beside the books, empty."""
        if not self.leads(token):
            return Lead.FENCED
        self.building = Books(epoch=epoch, token=token)
        return Lead.BUILDING

    def load_row(
        self, name: str, row: NodeRow | PodRow, *, blob: bytes, token: str, now: int
    ) -> Lead:
        """A row of an export, as it was, but that its hold is old and its stamp past."""
        books = self.building
        if books is None or books.token != token:
            return Lead.FENCED
        if isinstance(row, NodeRow):
            node = Node(row.uid, row.rv, row.config, row.capacity, bool(row.absent))
            books.nodes[NodeName(name)] = node
        else:
            stamp, deadline = min(row.stamp, now), min(row.deadline, now // 1000)
            books.pods[PodUid(name)] = replace(row, stamp=stamp, deadline=deadline)
            books.names[PodName(row.name)] = PodUid(name)
        if blob:
            books.blobs[name] = blob
        return Lead.LOADED

    def load_pods(
        self, facts: list[Loaded], *, epoch: str, token: str, now: int
    ) -> list[PodUid] | None:
        """Pods that are not beside the books yet; those whose name another has, None if fenced."""
        books, left = self.building, list[PodUid]()
        if books is None or (books.epoch, books.token) != (epoch, token):
            return None
        for fact in facts:
            if fact.uid in books.pods or fact.uid in books.gone:
                continue
            if PodName(fact.said.name) in books.names:
                left.append(fact.uid)
                continue
            books.put_pod(
                fact.uid,
                said=fact.said,
                token=token,
                approved=fact.approved,
                blob=fact.blob,
                now=now,
            )
        return left

    def publish(self, *, token: str, is_suspect: bool, settle_after_ms: int, now: int) -> Lead:
        """What was built is the ledger now; whose it is and its config stay."""
        if not self.leads(token) or self.building is None or self.building.token != token:
            return Lead.FENCED
        self.live, self.building, self.is_promoted = self.building, None, False
        self.lost_ms = 0
        self.schema = SCHEMA
        self.live.is_suspect = is_suspect
        self.live.settle_ms = now // 1000 + settle_after_ms
        return Lead.PUBLISHED

    # Whose it is, and the config

    def claim(self, cluster: str) -> Keep:
        """The first cluster that asks gets the ledger for good."""
        self.owner = self.owner or cluster
        return Keep.CLAIMED if self.owner == cluster else Keep.FOREIGN

    def put_config(self, version: str, text: str) -> Keep:
        """Keep the newest good config."""
        if self.config and newer(self.config[0], version):
            return Keep.OLD
        self.config = (version, text)
        return Keep.KEPT

    # What operators order

    def freeze(self, node: str, *, context: str, dry: bool, now: int) -> Order:
        """Grants stop on the node, or on all of them."""
        if node in self.freezes:
            return Order.ALREADY
        if node != "*" and (self.live is None or node not in self.live.nodes):
            return Order.NO_NODE
        if not dry:
            self.freezes[node] = f"{now // 1000} {context}"
        return Order.FROZEN

    def thaw(self, node: str, *, dry: bool) -> Order:
        """That freeze is over."""
        if node not in self.freezes:
            return Order.NOTHING
        if not dry:
            del self.freezes[node]
        return Order.THAWED

    def note_compared(self, token: str, *, asked: str, replica: str, mended: str) -> Lead:
        """Whoever asked for a compare is told."""
        if not self.leads(token):
            return Lead.FENCED
        self.compare |= {"done": asked, "replica": replica, "mended": mended}
        return Lead.COMPARED
