"""`autoscale-enforcer check-config`: would the service take this scheduler config?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

import click

from autoscale_enforcer.cli.exit_codes import ExitCode, exit_code_table
from autoscale_enforcer.cli.node_table import show_cpu_amount, show_memory_amount
from autoscale_enforcer.cli.options import json_option
from autoscale_enforcer.config.scheduler_config import (
    NodeConfig,
    SchedulerConfig,
    parse_scheduler_config,
)
from autoscale_enforcer.errors import ConfigError
from autoscale_enforcer.model.resources import NOTHING, Resources

HELP = """Check a scheduler config file and show what it means.

FILE holds the JSON that is in the ConfigMap `scheduler-plugin-config`, in any of the three formats
that NeonVM's scheduler plugin has published. Prints what the service makes of it, which of its
settings have no effect yet, and which fields mean nothing to this service; or every problem, each
behind its JSON path. - reads stdin.

\b
Examples:
  autoscale-enforcer check-config autoscale-enforcer-config.json
  kubectl -n kube-system get configmap scheduler-plugin-config \\
    -o jsonpath='{.data.autoscaler-enforcer-config\\.json}' | autoscale-enforcer check-config -
"""

Line = tuple[str, str]

WITHOUT_EFFECT = {
    "migrate VMs": "migrateVms",
    "metric labels": "nodeMetricLabels",
    "CPU watermark": "cpuWatermark",
    "memory watermark": "memoryWatermark",
}
"""What is read and checked, and not used yet: as people and as programs are told."""


@click.command("check-config", help=HELP, epilog=exit_code_table())
@click.argument("file", type=click.File("rb"))
@json_option
@click.pass_context
def check_config(ctx: click.Context, *, file: BinaryIO, as_json: bool) -> None:
    """Read, print, and tell by the exit code."""
    name = getattr(file, "name", "stdin")
    try:
        config = parse_scheduler_config(file.read())
    except ConfigError as error:
        _print_problems(name, error.problems, as_json=as_json)
        ctx.exit(ExitCode.FOUND)
    if as_json:
        click.echo(json.dumps(_document(config), indent=2))
    else:
        click.echo(_text(name, config))


def _print_problems(file: str, problems: list[str], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"usable": False, "problems": problems}, indent=2))
        return
    click.echo(f"{file}: cannot be used. Problems: {len(problems)}")
    for problem in problems:
        click.echo(f"  {problem}")


def _text(file: str, config: SchedulerConfig) -> str:
    lines = list(_lines(config))
    for override in config.overrides:
        lines.append(("", ""))
        lines.append(("only nodes", ", ".join(override.nodes)))
        lines += _node_lines(override.config)
    width = max(len(name) for name, _ in lines)
    unused = ", ".join(config.unused_fields) or "none"
    return "\n".join(
        [
            f"{file}: can be used. Its format is the one with `{config.format}`.",
            "",
            *(f"  {name.ljust(width)}  {meaning}".rstrip() for name, meaning in lines),
            "",
            f"Without effect yet: {', '.join(WITHOUT_EFFECT)}",
            f"Fields that mean nothing to this service: {unused}",
        ]
    )


def _lines(config: SchedulerConfig) -> Iterator[Line]:
    yield "scheduler name", config.scheduler_name or "not given"
    yield "ignored namespaces", ", ".join(sorted(config.ignored_namespaces)) or "none"
    if config.mem_block_size:
        yield "memory slot", show_memory_amount(config.mem_block_size)
    yield "migrate VMs", "yes" if config.migrate_vms else "no"
    yield "randomize scores", "yes" if config.randomize_scores else "no"
    labels = (f"{metric} from {label}" for metric, label in config.node_metric_labels.items())
    yield "metric labels", ", ".join(labels) or "none"
    yield from _node_lines(config.nodes)


def _node_lines(node: NodeConfig) -> Iterator[Line]:
    scoring = node.scoring
    yield "kept for the system", "nothing" if node.system == NOTHING else _amount(node.system)
    yield "CPU watermark", _watermark(node.cpu_watermark)
    yield "memory watermark", _watermark(node.mem_watermark)
    yield "compute unit", _amount(node.compute_unit) if node.compute_unit else "from the agents"
    lowest, highest = scoring.min_usage_score, scoring.max_usage_score
    yield "scores", f"{lowest:g} empty, 1 at {scoring.score_peak:.0%} in use, {highest:g} full"


def _amount(amount: Resources) -> str:
    return f"{show_cpu_amount(amount.cpu)}, {show_memory_amount(amount.mem)}"


def _watermark(share: float | None) -> str:
    return "none: no pod should move away" if share is None else f"{share:.0%} of the capacity"


def _document(config: SchedulerConfig) -> dict[str, Any]:
    return {
        "usable": True,
        "format": config.format,
        "schedulerName": config.scheduler_name,
        "memBlockSize": config.mem_block_size,
        "ignoredNamespaces": sorted(config.ignored_namespaces),
        "randomizeScores": config.randomize_scores,
        "migrateVms": config.migrate_vms,
        "nodeMetricLabels": config.node_metric_labels,
        "nodes": _node_document(config.nodes),
        "overrides": [
            {"nodes": list(override.nodes), **_node_document(override.config)}
            for override in config.overrides
        ],
        "withoutEffect": list(WITHOUT_EFFECT.values()),
        "unusedFields": list(config.unused_fields),
        "problems": [],
    }


def _node_document(node: NodeConfig) -> dict[str, Any]:
    return {
        "system": _amount_document(node.system),
        "cpuWatermark": node.cpu_watermark,
        "memoryWatermark": node.mem_watermark,
        "computeUnit": node.compute_unit and _amount_document(node.compute_unit),
        "minUsageScore": node.scoring.min_usage_score,
        "maxUsageScore": node.scoring.max_usage_score,
        "scorePeak": node.scoring.score_peak,
    }


def _amount_document(amount: Resources) -> dict[str, int]:
    return {"cpuMilli": amount.cpu, "memoryBytes": amount.mem}
