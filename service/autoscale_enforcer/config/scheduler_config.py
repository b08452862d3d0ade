"""The live config, in each of the three formats that NeonVM's scheduler plugin has published.

A format is told by the one key that only it has: `nodeDefaults`, `nodeConfig` or `scoring`. All
that the reference requires beyond it may be left out here, down to `{"scoring": {}}`; text behind
the object and repeated keys, which the reference overlooks, are refused.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from autoscale_enforcer.config.document import MAX_PROBLEMS, ROOT, Section, read_document
from autoscale_enforcer.config.readers import (
    cpu,
    flag,
    fraction,
    mem,
    metric_label,
    name,
    some_cpu,
    some_mem,
    text,
    unit_mem,
    watermark,
)
from autoscale_enforcer.errors import ConfigError
from autoscale_enforcer.model.resources import NOTHING, Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreShape:
    """What a node is worth by how full it is: two straight lines, up to a peak and down from it."""

    min_usage_score: float = 0.5
    """Worth of an empty node, where 1 is the worth at the peak."""
    max_usage_score: float = 0.0
    """Worth of a full node."""
    score_peak: float = 0.8
    """Share of the capacity in use that is liked best; 0 and 1 leave one line only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """What the config says of one node."""

    system: Resources = NOTHING
    """Kept back from pods, on top of what the kubelet keeps back itself (early releases only)."""
    cpu_watermark: float | None = None
    """Share of the CPU capacity above which pods should move away; None: none should."""
    mem_watermark: float | None = None
    """The same of memory."""
    compute_unit: Resources | None = None
    """The step of increases for VMs on this node; None where the agents bring their own."""
    scoring: ScoreShape = field(default_factory=ScoreShape)

    def capacity(self, allocatable: Resources) -> Resources:
        """What pods may hold of `allocatable`; never below 0."""
        return (allocatable - self.system).at_least(NOTHING)


@dataclass(frozen=True, slots=True)
class NodeOverride:
    """A config of their own for nodes whose name fits one of the globs."""

    nodes: tuple[str, ...]
    config: NodeConfig
    _names: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Once, and all globs as one: this is asked about every node in every prioritize.
        names = re.compile("|".join(map(fnmatch.translate, self.nodes)))
        object.__setattr__(self, "_names", names)

    def covers(self, node: str) -> bool:
        """Whether the node's name fits, the whole of it and in its own case."""
        return self._names.match(node) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """The live config; as it stands here, what holds when none is given."""

    format: str = "built-in"
    """The key that told the format."""
    scheduler_name: str | None = None
    """Pods of this scheduler are ours to place, and agents find us by a label of this value."""
    mem_block_size: int | None = None
    """Bytes of a memory slot, where memory is counted in slots (to about v0.22)."""
    ignored_namespaces: frozenset[str] = frozenset()
    """Their pods are seen by filter only."""
    randomize_scores: bool = False
    """Whether a score is drawn from 1 to the true one."""
    migrate_vms: bool = True
    """False where the config switches migrations off (`doMigration`)."""
    node_metric_labels: dict[str, str] = field(default_factory=dict)
    """Label of our node metrics -> label of the Node object that it is filled from."""
    nodes: NodeConfig = field(default_factory=NodeConfig)
    """For every node that no override covers."""
    overrides: tuple[NodeOverride, ...] = ()
    """The first that covers a node counts."""
    unused_fields: tuple[str, ...] = ()
    """Fields that are there and mean nothing to this service, in the order of the file."""

    @property
    def compute_unit(self) -> Resources | None:
        """The step of increases where no override says otherwise."""
        return self.nodes.compute_unit

    def node_config(self, node: str) -> NodeConfig:
        """What holds for the node of this name."""
        for override in self.overrides:
            if override.covers(node):
                return override.config
        return self.nodes

    def capacity(self, node: str, allocatable: Resources) -> Resources:
        """What pods may hold on the node of this name; never below 0."""
        return self.node_config(node).capacity(allocatable)


DEFAULT_CONFIG = SchedulerConfig()
"""Nothing kept back, nothing ignored, no unit, scores by the shape that releases ship."""


def parse_scheduler_config(content: bytes) -> SchedulerConfig:
    """The config that this JSON text is.

    Raises ConfigError with every problem in it, each behind its JSON path.
    """
    top, problems = read_document(content)
    markers = [marker for marker in _FORMATS if top.has(marker)]
    if len(markers) != 1:
        raise ConfigError([*problems, f"{ROOT}: {_why_no_format(markers)}"])
    config = _FORMATS[markers[0]].read(top)
    unused = top.present(_FORMATS[markers[0]].unused)
    top.finish(_homes())
    if problems:
        raise ConfigError(problems[:MAX_PROBLEMS])
    return replace(config, format=markers[0], unused_fields=unused)


@dataclass(frozen=True, slots=True)
class _Format:
    """A published format: the releases that read it, its fields, and how we read them."""

    releases: str
    read: Callable[[Section], SchedulerConfig]
    used: frozenset[str]
    """What `read` asks for, the marker aside."""
    unused: frozenset[str]
    """What only the reference has a use for."""


def _why_no_format(markers: list[str]) -> str:
    known = ", ".join(f"{marker} ({_FORMATS[marker].releases})" for marker in markers or _FORMATS)
    if markers:
        return f"mixes formats, keep one: {known}"
    return f"has the key of no known format: {known}"


def _homes() -> dict[str, str]:
    """Where each field is at home, in words for those who find it elsewhere."""
    homes: dict[str, list[str]] = {}
    for marker, each in _FORMATS.items():
        for known in each.used | each.unused:
            homes.setdefault(known, []).append(f"`{marker}` ({each.releases})")
    return {known: f"the format {' and '.join(formats)}" for known, formats in homes.items()}


def _read_node_defaults(top: Section) -> SchedulerConfig:
    slot = _mem_block_size(top)
    nodes = _node_config(top.section("nodeDefaults"), NodeConfig(), slot, with_system=True)
    overrides = [_override(each, nodes, slot) for each in top.sections("nodeOverrides")]
    return replace(_older_config(top, nodes, slot), overrides=tuple(overrides))


def _read_node_config(top: Section) -> SchedulerConfig:
    slot = _mem_block_size(top)
    section = top.section("nodeConfig")
    # The first releases of this format have the unit within nodeConfig, later ones beside it.
    if top.has("computeUnit") and section.has("computeUnit"):
        top.refuse("computeUnit", "is within nodeConfig too; keep one")
    base = NodeConfig(compute_unit=_compute_unit(top, slot, None))
    return _older_config(top, _node_config(section, base, slot, with_system=False), slot)


def _read_scoring(top: Section) -> SchedulerConfig:
    scoring = top.section("scoring")
    shape = _score_shape(scoring, ScoreShape())
    # The Go field names no JSON key, so what that program itself writes begins in upper case.
    randomize = scoring.take("Randomize", flag, default=False)
    randomize = scoring.take("randomize", flag, default=randomize)
    scoring.finish()
    above = top.take("watermark", watermark, None)
    return SchedulerConfig(
        scheduler_name=top.take("schedulerName", name, None),
        ignored_namespaces=frozenset(top.each("ignoredNamespaces", name)),
        randomize_scores=randomize,
        node_metric_labels=top.section("nodeMetricLabels").pairs(metric_label, name),
        nodes=NodeConfig(cpu_watermark=above, mem_watermark=above, scoring=shape),
    )


def _older_config(top: Section, nodes: NodeConfig, slot: int | None) -> SchedulerConfig:
    """What the two older formats have in common."""
    labels = {
        "node_group": top.take("k8sNodeGroupLabel", text, ""),
        "availability_zone": top.take("k8sAvailabilityZoneLabel", text, ""),
    }
    return SchedulerConfig(
        scheduler_name=top.take("schedulerName", name, None),
        mem_block_size=slot,
        ignored_namespaces=frozenset(top.each("ignoreNamespaces", name)),
        randomize_scores=top.take("randomizeScores", flag, default=False),
        migrate_vms=top.take("doMigration", flag, default=True),
        node_metric_labels={metric: label for metric, label in labels.items() if label},
        nodes=nodes,
    )


def _mem_block_size(top: Section) -> int | None:
    """Bytes of a memory slot; 1 where the size was refused, so that slots are still read."""
    return top.take("memBlockSize", some_mem, 1) if top.has("memBlockSize") else None


def _override(section: Section, base: NodeConfig, slot: int | None) -> NodeOverride:
    """What an override leaves out is as in `nodeDefaults`."""
    globs = section.each("nodes", name, required=True)
    config = _node_config(section.section("config", required=True), base, slot, with_system=True)
    section.finish()
    return NodeOverride(tuple(globs), config)


def _node_config(
    section: Section, base: NodeConfig, slot: int | None, *, with_system: bool
) -> NodeConfig:
    of_cpu, of_mem = section.section("cpu"), section.section("memory")
    system = base.system
    if with_system:
        system = Resources(
            of_cpu.take("system", cpu, system.cpu), of_mem.take("system", mem, system.mem)
        )
    config = NodeConfig(
        system=system,
        cpu_watermark=of_cpu.take("watermark", watermark, base.cpu_watermark),
        mem_watermark=of_mem.take("watermark", watermark, base.mem_watermark),
        compute_unit=_compute_unit(section, slot, base.compute_unit),
        scoring=_score_shape(section, base.scoring),
    )
    for each in (of_cpu, of_mem, section):
        each.finish()
    return config


def _compute_unit(
    section: Section, slot: int | None, default: Resources | None
) -> Resources | None:
    if not section.has("computeUnit"):
        return default
    unit = section.section("computeUnit")
    found = Resources(unit.need("vCPUs", some_cpu, 0), unit.need("mem", unit_mem(slot), 0))
    unit.finish()
    return found


def _score_shape(section: Section, base: ScoreShape) -> ScoreShape:
    return ScoreShape(
        min_usage_score=section.take("minUsageScore", fraction, base.min_usage_score),
        max_usage_score=section.take("maxUsageScore", fraction, base.max_usage_score),
        score_peak=section.take("scorePeak", fraction, base.score_peak),
    )


_OLDER = frozenset(
    {
        "doMigration",
        "ignoreNamespaces",
        "k8sAvailabilityZoneLabel",
        "k8sNodeGroupLabel",
        "memBlockSize",
        "randomizeScores",
        "schedulerName",
    }
)

_FORMATS = {
    "nodeDefaults": _Format(
        releases="v0.1 to v0.19",
        read=_read_node_defaults,
        used=_OLDER | {"nodeOverrides"},
        unused=frozenset({"dumpState", "migrationDeletionRetrySeconds"}),
    ),
    "nodeConfig": _Format(
        releases="v0.20 to v0.41",
        read=_read_node_config,
        used=_OLDER | {"computeUnit"},
        unused=frozenset(
            {
                "dumpState",
                "eventQueueWorkers",
                "migrationDeletionRetrySeconds",
                "startupEventHandlingTimeoutSeconds",
            }
        ),
    ),
    "scoring": _Format(
        releases="v0.42 on",
        read=_read_scoring,
        used=frozenset({"ignoredNamespaces", "nodeMetricLabels", "schedulerName", "watermark"}),
        unused=frozenset(
            {
                "k8sCRUDTimeoutSeconds",
                "logSuccessiveFailuresThreshold",
                "patchRetryWaitSeconds",
                "reconcileWorkers",
                "startupEventHandlingTimeoutSeconds",
            }
        ),
    ),
}
