"""What operators order over the admin port: who, why, and about what."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from autoscale_enforcer.errors import WireError
from autoscale_enforcer.model.ids import NodeName, PodName, pod_name
from autoscale_enforcer.model.names import name_problem
from autoscale_enforcer.wire.envelope import decode

LONGEST_WHO, LONGEST_WHY = 100, 500
"""Characters; the journal keeps them for as long as the entry."""


class OrderRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The body of each order; what it is about is left out where it is about everything."""

    who: str
    """Says who orders it; the token proves only that they may."""
    why: str = ""
    """Needed, but for a dry run."""
    node: str | None = None
    pod: str | None = None
    """`namespace/name`."""
    dry_run: bool = False

    @property
    def node_name(self) -> NodeName | None:
        """The node; None: everything."""
        return NodeName(self.node) if self.node is not None else None

    @property
    def pod_name(self) -> PodName:
        """The pod; WireError where none is named."""
        if self.pod is None:
            raise WireError("pod", "is required")
        namespace, slash, name = self.pod.partition("/")
        problem = name_problem(namespace) or name_problem(name)
        if problem or not slash:
            raise WireError("pod", "must be NAMESPACE/NAME")
        return pod_name(namespace, name)


_DECODER = msgspec.json.Decoder(OrderRequest)


def decode_order(body: bytes, *, about: Iterable[str] = ()) -> OrderRequest:
    """The order; WireError names the field that is wrong, or that this order is not `about`."""
    order = decode(_DECODER, body)
    for field in {"node", "pod"} - set(about):
        if getattr(order, field) is not None:
            raise WireError(field, "means nothing here")
    if order.node is not None and (problem := name_problem(order.node)):
        raise WireError("node", problem)
    _check_words("who", order.who, LONGEST_WHO, is_needed=True)
    _check_words("why", order.why, LONGEST_WHY, is_needed=not order.dry_run)
    return order


def _check_words(field: str, text: str, limit: int, *, is_needed: bool) -> None:
    if is_needed and not text.strip():
        raise WireError(field, "must say something")
    if len(text) > limit:
        raise WireError(field, f"must have at most {limit} characters")
    if not text.isprintable():
        raise WireError(field, "must not contain characters that cannot be printed")
