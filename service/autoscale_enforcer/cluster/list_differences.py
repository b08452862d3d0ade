"""What booking a cluster out of a file once more would change; it takes nothing away."""

from __future__ import annotations

from autoscale_enforcer.cluster.differences import (
    Difference,
    shown_capacity,
    shown_fact,
    shown_node,
    shown_row,
    sum_differences,
)
from autoscale_enforcer.cluster.kubernetes.comparing import pod_says
from autoscale_enforcer.cluster.source import ClusterSource
from autoscale_enforcer.config.live import LiveConfig
from autoscale_enforcer.ledger.ledger import Ledger


async def list_differences(
    ledger: Ledger, source: ClusterSource, config: LiveConfig
) -> list[Difference]:
    """Every row that booking the cluster's facts once more would change."""
    found = await _nodes(ledger, source, config)
    rows = await ledger.scan_pods()
    for fact in await source.list_pods():
        row = rows.get(fact.uid)
        ignored = fact.namespace in config.current.ignored_namespaces
        if fact.finished if row is None else pod_says(row, fact, ignored=ignored):
            continue
        found.append(Difference("pod", fact.full_name, shown_row(row), shown_fact(fact)))
    return [*found, *await sum_differences(ledger)]


async def _nodes(ledger: Ledger, source: ClusterSource, config: LiveConfig) -> list[Difference]:
    await ledger.mirror.refresh()
    found = []
    for fact in await source.list_nodes():
        row = ledger.mirror.nodes.get(fact.name)
        capacity = config.current.node_config(fact.name).capacity(fact.allocatable)
        if row is None or row.absent or row.capacity != capacity:
            shown = shown_capacity(fact, capacity)
            found.append(Difference("node", fact.name, shown_node(row), shown))
    return found
