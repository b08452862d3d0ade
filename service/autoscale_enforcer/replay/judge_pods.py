"""Is an answer to preempt, bind, reserve or unreserve legal? Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from autoscale_enforcer.replay.asked import (
    BindAsked,
    PreemptAsked,
    ReserveAsked,
    UnreserveAsked,
    Victims,
)
from autoscale_enforcer.replay.verdict import Answer, Verdict, listed, one_line, read_body

SUCCESS = "Success"
CODES = frozenset({SUCCESS, "Unschedulable", "UnschedulableAndUnresolvable", "Error"})


class _Victim(msgspec.Struct):
    uid: str = msgspec.field(name="UID")


class _Victims(msgspec.Struct):
    pods: list[_Victim] | None = msgspec.field(name="Pods", default=None)
    budget_violations: int = msgspec.field(name="NumPDBViolations", default=0)


class _PreemptionResult(msgspec.Struct):
    nodes: dict[str, _Victims | None] | None = msgspec.field(
        name="NodeNameToMetaVictims", default=None
    )


class _BindingResult(msgspec.Struct):
    error: str | None = msgspec.field(name="Error", default=None)


class _ReserveResult(msgspec.Struct):
    code: str = msgspec.field(name="Code")
    reasons: list[str] | None = msgspec.field(name="Reasons", default=None)


def judge_preempt(asked: PreemptAsked, answer: Answer) -> Verdict:
    """Some of the offered nodes, each with some of the victims offered for it and none else.

    Raises UnreadableError.
    """
    result = read_body(answer, _PreemptionResult)
    if result.nodes is None:
        return Verdict(disagreements=["answered without NodeNameToMetaVictims"])
    found: list[str] = []
    for node, victims in result.nodes.items():
        offered = asked.offered.get(node)
        if offered is None:
            found.append(f"answered but not offered: {listed([node])}")
        else:
            found.extend(f"{text} on {node}" for text in _victim_disagreements(offered, victims))
    return Verdict(disagreements=found)


def _victim_disagreements(offered: Victims, answered: _Victims | None) -> Iterator[str]:
    if answered is None or not answered.pods:
        yield "no victims"
        return
    counts = Counter(victim.uid for victim in answered.pods)
    unknown = counts.keys() - offered.uids
    repeated = {uid for uid, count in counts.items() if count > 1}
    if unknown:
        yield f"victims that were not offered: {listed(unknown)}"
    if repeated:
        yield f"victims named twice: {listed(repeated)}"
    if answered.budget_violations != offered.budget_violations:
        kept = f"{offered.budget_violations} became {answered.budget_violations}"
        yield f"NumPDBViolations changed: {kept}"


def judge_bind(asked: BindAsked, answer: Answer, passed: frozenset[str] | None) -> Verdict:
    """Bound, on a node among those that the last filter `passed` (None: no filter was seen).

    Raises UnreadableError.
    """
    found: list[str] = []
    if passed is not None and asked.node not in passed:
        others = listed(passed) if passed else "none"
        found.append(f"{asked.node} was not passed by the filter before, which passed {others}")
    refusal = read_body(answer, _BindingResult).error
    if refusal:
        found.append(f"refused on {asked.node}: {one_line(refusal)}")
    return Verdict(disagreements=found, refused=bool(refusal))


def judge_reserve(asked: ReserveAsked, answer: Answer) -> Verdict:
    """A known Code. A refusal is legal, trouble of the service is not; unreserve never refuses.

    Raises UnreadableError.
    """
    result = read_body(answer, _ReserveResult)
    reasons = one_line("; ".join(result.reasons or [])) or "no reason given"
    found: list[str] = []
    if result.code not in CODES:
        found.append(f"unknown Code {one_line(result.code)!r}")
    elif result.code == "Error":
        found.append(f"Code Error on {asked.node}: {reasons}")
    elif result.code != SUCCESS and isinstance(asked, UnreserveAsked):
        found.append(f"refused to give back on {asked.node}: {reasons}")
    return Verdict(disagreements=found, refused=result.code != SUCCESS)
