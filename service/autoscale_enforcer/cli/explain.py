"""`autoscale-enforcer explain`: where one pod may go, and why not elsewhere."""

from __future__ import annotations

import json
from collections import Counter

import click
import msgspec

from autoscale_enforcer.cli import admin_client, values
from autoscale_enforcer.cli.exit_codes import ExitCode, exit_code_table
from autoscale_enforcer.cli.node_table import Amount, show_cpu_amount, show_memory_amount
from autoscale_enforcer.cli.options import admin_option, json_option

HELP = """Show where one pod may go, and why not elsewhere.

POD is NAMESPACE/NAME. For each node: the reason that kube-scheduler is told, what is left for the
pod there, and what is missing. Taints, affinity and other rules of kube-scheduler are not looked
at. A VM needs what its overcommit leaves of its amount. A pod that is bound, or being bound, passes
on its own node only.

\b
Examples:
  autoscale-enforcer explain default/web-0
  autoscale-enforcer explain default/web-0 --node n7 --json

Exit code 1 means that no node that is shown would do; 4 that the pod or the node is not known.
"""


class Node(msgspec.Struct, frozen=True):
    """One node, as far as the pod is concerned."""

    name: str
    fits: bool
    left: Amount
    missing: Amount
    reason: str | None = None


class ExplainAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """The answer of `/api/v1/explain/{namespace}/{name}`."""

    needs: Amount
    nodes: list[Node]
    stage: str
    problem: str = ""
    fixed_to: str | None = None


@click.command("explain", help=HELP, epilog=exit_code_table())
@click.argument("pod", type=values.pod)
@click.option("--node", metavar="NAME", help="Only this node.")
@admin_option
@json_option
@click.pass_context
def explain(
    ctx: click.Context, *, pod: str, node: str | None, admin_url: str, as_json: bool
) -> None:
    """Ask, print, and tell by the exit code."""
    query = f"?node={node}" if node else ""
    body = admin_client.get(admin_url, f"/api/v1/explain/{pod}{query}")
    answer = admin_client.read(body, ExplainAnswer, admin_url=admin_url)
    click.echo(json.dumps(json.loads(body), indent=2) if as_json else _words(answer, pod))
    ctx.exit(ExitCode.DONE if any(each.fits for each in answer.nodes) else ExitCode.FOUND)


def _words(answer: ExplainAnswer, pod: str) -> str:
    where = f" on {answer.fixed_to}" if answer.fixed_to else ""
    needs = f"{show_cpu_amount(answer.needs.cpu_milli)} and "
    needs += show_memory_amount(answer.needs.memory_bytes)
    lines = [f"Pod {pod} is {answer.stage}{where} and needs {needs}."]
    if answer.problem:
        lines.append(f"It cannot be understood: {answer.problem}")
    width = max((len(each.name) for each in answer.nodes), default=0)
    lines += [f"  {each.name.ljust(width)}  {_of_node(each)}" for each in answer.nodes]
    return "\n".join([*lines, _summary(answer)])


def _of_node(node: Node) -> str:
    left = f"left {show_cpu_amount(node.left.cpu_milli)}, "
    left += show_memory_amount(node.left.memory_bytes)
    missing = []
    if node.missing.cpu_milli:
        missing.append(show_cpu_amount(node.missing.cpu_milli))
    if node.missing.memory_bytes:
        missing.append(show_memory_amount(node.missing.memory_bytes))
    verdict = "fits" if node.fits else node.reason
    return f"{verdict}; {left}" + (f"; missing {', '.join(missing)}" if missing else "")


def _summary(answer: ExplainAnswer) -> str:
    fits = sum(each.fits for each in answer.nodes)
    why = Counter(each.reason for each in answer.nodes if each.reason)
    most_first = sorted(why.items(), key=lambda pair: (-pair[1], pair[0]))
    parts = [f"{count} {reason}" for reason, count in most_first]
    return f"{fits}/{len(answer.nodes)} nodes would do" + "".join(f", {part}" for part in parts)
