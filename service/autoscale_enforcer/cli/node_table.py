"""The table of nodes that `status` prints: the shape of the answer, and how people read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

GIB, MIB = 1 << 30, 1 << 20

_HEAD = ("node", "cpu", "memory", "pods", "pressure", "flags")
_GAP = "  "
_LONGEST_BAR = 10
_SHORTEST_BAR = 4


class Amount(msgspec.Struct, frozen=True, rename="camel"):
    """Of CPU and memory."""

    cpu_milli: int = 0
    memory_bytes: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.cpu_milli + other.cpu_milli, self.memory_bytes + other.memory_bytes)


class Node(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What is shown of one node."""

    name: str
    capacity: Amount
    reserved: Amount
    pressure: Amount = Amount()
    migrating: Amount = Amount()
    pods: int
    over_capacity: bool = False
    absent: bool = False
    unsettled: bool = False
    frozen: bool = False

    @property
    def flags(self) -> str:
        """What is out of the ordinary."""
        flags = {
            "over capacity": self.over_capacity,
            "absent": self.absent,
            "unsettled": self.unsettled,
            "frozen": self.frozen,
            "migrating": self.migrating != Amount(),
        }
        return ", ".join(flag for flag, is_set in flags.items() if is_set) or "-"


class ConfigState(msgspec.Struct, frozen=True):
    """The scheduler config of the replica that answered."""

    version: str = ""
    problems: list[str] = []


class Freeze(msgspec.Struct, frozen=True):
    """Where grants are stopped, as the service tells it."""

    since: str
    who: str
    why: str
    node: str | None = None

    @property
    def where(self) -> str:
        """The node, or everything."""
        return "everything" if self.node is None else f"node {self.node}"

    @property
    def words(self) -> str:
        """Where, since when, by whom and why."""
        return f"{self.where}, since {self.since} by {self.who}: {self.why}"


class NodesAnswer(msgspec.Struct, frozen=True):
    """The answer of `/api/v1/nodes`."""

    nodes: list[Node]
    config: ConfigState = ConfigState()
    freezes: list[Freeze] = []


def table(nodes: Sequence[Node], *, width: int | None) -> str:
    """A line for each node and a sentence for all, within `width` columns where that can be."""
    if not nodes:
        return "No nodes are known."
    ordered = sorted(nodes, key=lambda node: node.name)
    names = [node.name for node in ordered]
    bar = _bar_width(_rows(names, ordered, 0), width)
    if bar < _SHORTEST_BAR:
        names = _without_shared_domain(names)
        bar = max(_SHORTEST_BAR, _bar_width(_rows(names, ordered, 0), width))
    return "\n".join([*_aligned(_rows(names, ordered, bar)), "", _summary(ordered)])


def _rows(names: Sequence[str], nodes: Sequence[Node], bar: int) -> list[tuple[str, ...]]:
    return [_HEAD, *((name, *_row(node, bar)) for name, node in zip(names, nodes, strict=True))]


def _row(node: Node, bar: int) -> tuple[str, ...]:
    return (
        _bar(node.reserved.cpu_milli, node.capacity.cpu_milli, bar)
        + show_cpu(node.reserved.cpu_milli, node.capacity.cpu_milli),
        _bar(node.reserved.memory_bytes, node.capacity.memory_bytes, bar)
        + show_memory(node.reserved.memory_bytes, node.capacity.memory_bytes),
        str(node.pods),
        _pressure(node.pressure),
        node.flags,
    )


def _bar_width(rows: Sequence[tuple[str, ...]], width: int | None) -> int:
    """Columns for each of the two bars, where `rows` is what else is to be shown."""
    if width is None:
        return _LONGEST_BAR
    taken = sum(max(map(len, column)) for column in zip(*rows, strict=True))
    gaps = len(_GAP) * (len(_HEAD) - 1) + 2  # a space behind each bar
    return min(_LONGEST_BAR, (width - taken - gaps) // 2)


def _without_shared_domain(names: Sequence[str]) -> list[str]:
    """The domain that all have in common as one sign, so that no two become alike."""
    labels = [name.split(".")[::-1] for name in names]
    shared = 0
    for column in zip(*(each[:-1] for each in labels), strict=False):
        if len(set(column)) > 1:
            break
        shared += 1
    return [".".join(each[shared:][::-1]) + "…" * bool(shared) for each in labels]


def _bar(part: int, whole: int, width: int) -> str:
    """Filled as far as `part` goes; not quite full while the least of it is left."""
    if not width:
        return ""
    filled = width if part >= whole else part * width // whole
    return "█" * filled + "░" * (width - filled) + " "


def show_cpu(part: int, whole: int) -> str:
    """`3.92 / 4`, exact."""
    return f"{_cores(part)} / {_cores(whole)}"


def show_memory(part: int, whole: int) -> str:
    """`11.1 / 15.5 GiB`; without a point where it is exact."""
    unit, name = (GIB, "GiB") if max(part, whole) >= GIB else (MIB, "MiB")
    return f"{_tenths(part, unit)} / {_tenths(whole, unit)} {name}"


def show_cpu_amount(milli: int) -> str:
    """`0.25 CPU`."""
    return f"{_cores(milli)} CPU"


def show_memory_amount(amount: int) -> str:
    """`1.5 GiB`."""
    unit, name = (GIB, "GiB") if amount >= GIB else (MIB, "MiB")
    return f"{_tenths(amount, unit)} {name}"


def _cores(milli: int) -> str:
    whole, rest = divmod(milli, 1000)
    return f"{whole}.{rest:03}".rstrip("0").rstrip(".")


def _tenths(amount: int, unit: int) -> str:
    return str(amount // unit) if amount % unit == 0 else f"{amount / unit:.1f}"


def _pressure(pressure: Amount) -> str:
    parts = []
    if pressure.cpu_milli:
        parts.append(show_cpu_amount(pressure.cpu_milli))
    if pressure.memory_bytes:
        parts.append(show_memory_amount(pressure.memory_bytes))
    return ", ".join(parts) or "-"


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if head == "pods" else cell.ljust(width)
            for cell, width, head in zip(row, widths, _HEAD, strict=True)
        ]
        yield _GAP.join(cells).rstrip()


def _summary(nodes: Sequence[Node]) -> str:
    reserved = sum((node.reserved for node in nodes), Amount())
    capacity = sum((node.capacity for node in nodes), Amount())
    over = sum(node.over_capacity for node in nodes)
    return (
        f"{len(nodes)} nodes with {sum(node.pods for node in nodes)} pods; reserved "
        f"{show_cpu(reserved.cpu_milli, capacity.cpu_milli)} CPU and "
        f"{show_memory(reserved.memory_bytes, capacity.memory_bytes)}"
        + (f"; {over} over capacity." if over else ".")
    )
