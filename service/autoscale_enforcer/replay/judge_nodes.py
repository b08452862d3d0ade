"""Is an answer to filter or to prioritize legal? Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from autoscale_enforcer.replay.asked import (
    FilterAsked,
    PrioritizeAsked,
    UnreadableError,
    node_name,
)
from autoscale_enforcer.replay.verdict import (
    Answer,
    Verdict,
    is_same_json,
    listed,
    one_line,
    read_body,
)

HIGHEST_SCORE = 10
"""MaxExtenderPriority of kube-scheduler; it multiplies what it gets without a check."""


class _NodeList(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


class _FilterResult(msgspec.Struct):
    """ExtenderFilterResult, its keys as kube-scheduler writes them."""

    nodes: _NodeList | None = msgspec.field(name="Nodes", default=None)
    names: list[str] | None = msgspec.field(name="NodeNames", default=None)
    failed: dict[str, str] | None = msgspec.field(name="FailedNodes", default=None)
    unresolvable: dict[str, str] | None = msgspec.field(
        name="FailedAndUnresolvableNodes", default=None
    )
    error: str | None = msgspec.field(name="Error", default=None)


class _HostPriority(msgspec.Struct):
    host: str = msgspec.field(name="Host")
    score: Any = msgspec.field(name="Score", default=None)


def judge_filter(asked: FilterAsked, answer: Answer) -> Verdict:
    """Each offered node in exactly one list, nothing else, and Node objects as they were sent.

    Raises UnreadableError.
    """
    result = read_body(answer, _FilterResult)
    if result.error:
        text = f"answered with an Error: {one_line(result.error)}"
        return Verdict(disagreements=[text], refused=True)
    returned = _returned_nodes(result)
    passed = [*(result.names or []), *(name for name, _ in returned)]
    found = [
        *_mode_disagreements(asked, result),
        *_place_disagreements(asked.offered, passed, result),
        *_changed_nodes(asked.nodes or {}, returned),
    ]
    return Verdict(disagreements=found, refused=not passed, passed=frozenset(passed))


def _returned_nodes(result: _FilterResult) -> list[tuple[str, bytes]]:
    items = (result.nodes.items if result.nodes else None) or []
    try:
        return [(node_name(raw), bytes(raw)) for raw in items]
    except UnreadableError as error:
        raise UnreadableError(f"a returned Node cannot be read: {error}") from error


def _mode_disagreements(asked: FilterAsked, result: _FilterResult) -> Iterator[str]:
    if asked.nodes is None and result.nodes is not None:
        yield "asked with NodeNames, answered with Nodes"
    if asked.nodes is not None and result.names is not None:
        yield "asked with Nodes, answered with NodeNames"


def _place_disagreements(
    offered: tuple[str, ...], passed: list[str], result: _FilterResult
) -> Iterator[str]:
    places = Counter(set(passed))
    places.update((result.failed or {}).keys())
    places.update((result.unresolvable or {}).keys())
    yield from _report("passed more than once", _repeated(Counter(passed)))
    yield from _report("in more than one list", _repeated(places))
    yield from _report("answered but not offered", places.keys() - set(offered))
    yield from _report("offered but in no list", set(offered) - places.keys())


def _changed_nodes(sent: Mapping[str, bytes], returned: list[tuple[str, bytes]]) -> Iterator[str]:
    changed = {name for name, raw in returned if name in sent and not is_same_json(sent[name], raw)}
    yield from _report("Node objects came back changed", changed)


def judge_prioritize(asked: PrioritizeAsked, answer: Answer) -> Verdict:
    """Each offered node scored exactly once, with a whole number that kube-scheduler can use.

    Raises UnreadableError.
    """
    scores = read_body(answer, list[_HostPriority])
    hosts = Counter(score.host for score in scores)
    found = [
        *_report("scored more than once", _repeated(hosts)),
        *_report("scored but not offered", hosts.keys() - set(asked.offered)),
        *_report("offered but without a score", set(asked.offered) - hosts.keys()),
        *_report(f"score is no whole number from 0 to {HIGHEST_SCORE}", _bad_scores(scores)),
    ]
    return Verdict(disagreements=found)


def _bad_scores(scores: list[_HostPriority]) -> set[str]:
    return {f"{score.host}={score.score!r}" for score in scores if not _is_legal_score(score.score)}


def _is_legal_score(score: object) -> bool:
    # Go reads neither 5.0 nor true as an int64, while to Python both are numbers like any other.
    return type(score) is int and 0 <= score <= HIGHEST_SCORE


def _repeated(counts: Counter[str]) -> set[str]:
    return {name for name, count in counts.items() if count > 1}


def _report(what: str, names: set[str]) -> Iterator[str]:
    if names:
        yield f"{what}: {listed(names)}"
