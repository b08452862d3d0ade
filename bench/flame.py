"""Draws a flame graph of sampled stacks as a small picture, and says where the time went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape

LEAST = 0.004
"""Share of all samples below which a call is left out: nobody could read it."""

WIDTH, ROW, FONT = 1200, 15, 10
_LETTER = 6.1
"""Pixels, about."""


@dataclass(slots=True)
class Frame:
    """A call, with the calls that it made."""

    name: str
    samples: int = 0
    calls: dict[str, Frame] = field(default_factory=dict)

    def add(self, stack: list[str], samples: int) -> None:
        """Count so many samples of that stack."""
        self.samples += samples
        here = self
        for name in stack:
            here = here.calls.setdefault(name, Frame(name))
            here.samples += samples


def read(lines: Iterable[str], *, below: str = "") -> Frame:
    """py-spy's raw stacks as one tree; with `below`, only what that function calls."""
    root = Frame("all")
    for line in lines:
        text, _, count = line.rpartition(" ")
        stack = [short(each) for each in text.split(";")]
        starts = [at for at, name in enumerate(stack) if below and name.startswith(below)]
        if below and not starts:
            continue
        root.add(stack[starts[0] :] if starts else stack, int(count))
    return root


def short(frame: str) -> str:
    """A frame as `function (module)`, without path and line."""
    name, _, place = frame.strip().partition(" (")
    path = place.rstrip(")").partition(":")[0]
    for marker in ("site-packages/", "service/"):
        path = path.rpartition(marker)[2]
    return f"{name} ({path})" if path else name


def table(root: Frame, most: int = 20) -> str:
    """The functions that took most, themselves and with what they call, in percent."""
    alone: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    _count(root, frozenset(), alone, whole)
    rows = ["  self  total"]
    rows += [
        f"{100 * count / root.samples:5.1f}% {100 * whole[name] / root.samples:5.1f}%  {name}"
        for name, count in alone.most_common(most)
    ]
    return "\n".join(rows)


def _count(frame: Frame, above: frozenset[str], alone: Counter[str], whole: Counter[str]) -> None:
    alone[frame.name] += frame.samples - sum(each.samples for each in frame.calls.values())
    if frame.name not in above:
        whole[frame.name] += frame.samples
    for each in frame.calls.values():
        _count(each, above | {frame.name}, alone, whole)


def svg(root: Frame, title: str) -> str:
    """The picture. The wider a call, the longer it was found running; what it calls is below it."""
    boxes: list[str] = []
    depth = _draw(root, 0.0, 1, root.samples, boxes)
    height = ROW * (depth + 2)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
        f' font-family="monospace" font-size="{FONT}">'
        f'<text x="4" y="{ROW - 4}">{escape(title)}, {root.samples} samples</text>'
    )
    return "\n".join([head, *boxes, "</svg>"]) + "\n"


def _draw(frame: Frame, left: float, depth: int, total: int, boxes: list[str]) -> int:
    """How deep it went."""
    share = frame.samples / total
    width = share * WIDTH
    letters = int(width / _LETTER) - 1
    text = frame.name if len(frame.name) <= letters else frame.name[: max(letters - 1, 0)] + "…"
    label = f'<text x="{left + 2:.1f}" y="{ROW * (depth + 1) - 4}">{escape(text)}</text>'
    boxes.append(
        f'<g><title>{escape(frame.name)}: {100 * share:.1f} %</title><rect x="{left:.1f}"'
        f' y="{ROW * depth}" width="{width:.1f}" height="{ROW - 1}" fill="{_colour(frame.name)}"/>'
        f"{label if letters > 2 else ''}</g>"
    )
    deepest = depth
    for each in sorted(frame.calls.values(), key=lambda call: call.name):
        if each.samples >= LEAST * total:
            deepest = max(deepest, _draw(each, left, depth + 1, total, boxes))
            left += each.samples / total * WIDTH
    return deepest


def _colour(name: str) -> str:
    """Ours, aiohttp's and the loop's, Redis' client, everything else."""
    kinds = (("autoscale_enforcer", "#f4a261"), ("aiohttp", "#8ecae6"), ("redis", "#e76f51"))
    return next((colour for word, colour in kinds if word in name), "#e9ecef")
