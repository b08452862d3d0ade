"""The three published config formats, read exactly; every refusal with the path of its field."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from autoscale_enforcer.config.document import MAX_BYTES, MAX_PROBLEMS
from autoscale_enforcer.config.scheduler_config import (
    DEFAULT_CONFIG,
    NodeConfig,
    NodeOverride,
    SchedulerConfig,
    ScoreShape,
    parse_scheduler_config,
)
from autoscale_enforcer.errors import ConfigError
from autoscale_enforcer.model.resources import Resources

SHIPPED = Path(__file__).parents[2] / "data" / "config"
MIB = 1 << 20
GIB = 1 << 30
ZONE_AND_GROUP = {
    "node_group": "eks.amazonaws.com/nodegroup",
    "availability_zone": "topology.kubernetes.io/zone",
}
OF_V0_1 = NodeConfig(
    system=Resources(500, 512 * MIB),
    cpu_watermark=0.7,
    mem_watermark=0.7,
    compute_unit=Resources(1000, 4 * GIB),
)
OF_V0_23 = NodeConfig(
    cpu_watermark=0.9, mem_watermark=0.9, compute_unit=Resources(250, GIB), scoring=ScoreShape()
)

PARSED = {
    "node_defaults_v0.1.json": SchedulerConfig(
        format="nodeDefaults",
        scheduler_name="autoscale-scheduler",
        mem_block_size=GIB,
        migrate_vms=False,
        nodes=OF_V0_1,
        overrides=(
            NodeOverride(
                ("edge-1", "gpu-*"),
                NodeConfig(
                    system=Resources(2000, 4 * GIB),
                    cpu_watermark=0.5,
                    mem_watermark=0.6,
                    compute_unit=Resources(2000, 8 * GIB),
                ),
            ),
            NodeOverride(
                ("gpu-?",),
                NodeConfig(
                    system=Resources(500, GIB),
                    cpu_watermark=0.7,
                    mem_watermark=0.7,
                    compute_unit=Resources(1000, 4 * GIB),
                ),
            ),
        ),
    ),
    "node_defaults_v0.18.json": SchedulerConfig(
        format="nodeDefaults",
        scheduler_name="autoscale-scheduler",
        mem_block_size=GIB,
        ignored_namespaces=frozenset({"overprovisioning"}),
        randomize_scores=True,
        node_metric_labels=ZONE_AND_GROUP,
        nodes=NodeConfig(
            cpu_watermark=0.9,
            mem_watermark=0.8,
            compute_unit=Resources(250, GIB),
            scoring=ScoreShape(min_usage_score=0.4, max_usage_score=0.1, score_peak=0.75),
        ),
        unused_fields=("dumpState", "migrationDeletionRetrySeconds"),
    ),
    "node_config_v0.20.json": SchedulerConfig(
        format="nodeConfig",
        scheduler_name="autoscale-scheduler",
        mem_block_size=512 * MIB,
        migrate_vms=False,
        randomize_scores=True,
        nodes=OF_V0_23,
        unused_fields=("dumpState", "migrationDeletionRetrySeconds"),
    ),
    "node_config_v0.23.json": SchedulerConfig(
        format="nodeConfig",
        scheduler_name="autoscale-scheduler",
        ignored_namespaces=frozenset({"overprovisioning"}),
        randomize_scores=True,
        migrate_vms=False,
        node_metric_labels=ZONE_AND_GROUP,
        nodes=OF_V0_23,
        unused_fields=("dumpState", "migrationDeletionRetrySeconds"),
    ),
    "node_config_v0.41.json": SchedulerConfig(
        format="nodeConfig",
        scheduler_name="autoscale-scheduler",
        randomize_scores=True,
        nodes=NodeConfig(cpu_watermark=0.9, mem_watermark=0.9),
        unused_fields=(
            "eventQueueWorkers",
            "startupEventHandlingTimeoutSeconds",
            "dumpState",
            "migrationDeletionRetrySeconds",
        ),
    ),
    "scoring_v0.42.json": SchedulerConfig(
        format="scoring",
        scheduler_name="autoscale-scheduler",
        ignored_namespaces=frozenset({"overprovisioning", "load-test"}),
        randomize_scores=True,
        node_metric_labels=ZONE_AND_GROUP,
        nodes=NodeConfig(cpu_watermark=0.9, mem_watermark=0.9),
        unused_fields=(
            "reconcileWorkers",
            "logSuccessiveFailuresThreshold",
            "startupEventHandlingTimeoutSeconds",
            "patchRetryWaitSeconds",
            "k8sCRUDTimeoutSeconds",
        ),
    ),
}


def problems_of(content: bytes | str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        parse_scheduler_config(content.encode() if isinstance(content, str) else content)
    return refused.value.problems


@pytest.mark.parametrize("file", sorted(each.name for each in SHIPPED.glob("*.json")))
def test_shipped_config_is_read_to_the_last_field(file: str) -> None:
    config = parse_scheduler_config((SHIPPED / file).read_bytes())

    assert config == PARSED[file]


@pytest.mark.parametrize("marker", ["nodeDefaults", "nodeConfig", "scoring"])
def test_config_of_a_marker_alone_leaves_the_defaults(marker: str) -> None:
    config = parse_scheduler_config(json.dumps({marker: {}}).encode())

    assert config == SchedulerConfig(format=marker)


def test_default_config_holds_where_none_is_given() -> None:
    config = SchedulerConfig()

    assert config == SchedulerConfig(
        format="built-in",
        scheduler_name=None,
        mem_block_size=None,
        ignored_namespaces=frozenset(),
        randomize_scores=False,
        migrate_vms=True,
        node_metric_labels={},
        nodes=NodeConfig(
            system=Resources(0, 0),
            cpu_watermark=None,
            mem_watermark=None,
            compute_unit=None,
            scoring=ScoreShape(min_usage_score=0.5, max_usage_score=0.0, score_peak=0.8),
        ),
        overrides=(),
        unused_fields=(),
    )
    assert config == DEFAULT_CONFIG
    assert config.compute_unit is None
    assert config.capacity("any", Resources(4000, GIB)) == Resources(4000, GIB)


@pytest.mark.parametrize(
    ("node", "system"),
    [
        ("worker-1", Resources(500, 512 * MIB)),
        ("edge-1", Resources(2000, 4 * GIB)),
        ("edge-10", Resources(500, 512 * MIB)),
        ("an-edge-1", Resources(500, 512 * MIB)),
        ("gpu-7", Resources(2000, 4 * GIB)),
        ("GPU-7", Resources(500, 512 * MIB)),
        ("gpu-\n", Resources(2000, 4 * GIB)),
    ],
)
def test_node_config_is_the_first_override_whose_glob_fits(node: str, system: Resources) -> None:
    config = parse_scheduler_config((SHIPPED / "node_defaults_v0.1.json").read_bytes())

    assert config.node_config(node).system == system


def test_capacity_is_allocatable_without_system_and_never_negative() -> None:
    config = parse_scheduler_config((SHIPPED / "node_defaults_v0.1.json").read_bytes())

    assert config.capacity("worker-1", Resources(4000, GIB)) == Resources(3500, 512 * MIB)
    assert config.capacity("worker-1", Resources(400, 2 * GIB)) == Resources(0, 1536 * MIB)


def test_null_counts_as_absent() -> None:
    """Go's decoder leaves a field alone that is null, so such configs run today."""
    text = '{"scoring": {"scorePeak": null}, "ignoredNamespaces": null, "watermark": null}'

    assert parse_scheduler_config(text.encode()) == SchedulerConfig(format="scoring")


def test_randomize_is_read_as_the_program_itself_prints_it() -> None:
    assert parse_scheduler_config(b'{"scoring": {"Randomize": true}}').randomize_scores


@pytest.mark.parametrize("label", ["k8sNodeGroupLabel", "k8sAvailabilityZoneLabel"])
def test_metric_label_of_older_formats_may_be_empty(label: str) -> None:
    config = parse_scheduler_config(json.dumps({"nodeConfig": {}, label: ""}).encode())

    assert config.node_metric_labels == {}


def unit(slots: float, block: str) -> str:
    compute_unit = {"vCPUs": "1m", "mem": slots}
    return json.dumps({"nodeConfig": {}, "memBlockSize": block, "computeUnit": compute_unit})


@pytest.mark.parametrize(
    "text",
    [
        '{"scoring": {"minUsageScore": 0, "maxUsageScore": 1, "scorePeak": 0.0}, "watermark": 1}',
        '{"nodeConfig": {}, "computeUnit": {"vCPUs": "1n", "mem": "1Mi"}}',
        unit(1, "1"),
        unit(65535, "1Gi"),
        unit(2.0, "32Ti"),
        f'{{"scoring": {{}}, "reconcileWorkers": {"9" * 64}}}',
        '{"scoring": {}}'.ljust(MAX_BYTES),
        f'{{"scoring": {{}}, "reconcileWorkers": {"[" * 31}{"]" * 31}}}',
    ],
    ids=range(8),
)
def test_config_at_the_edge_of_what_is_allowed_is_read(text: str) -> None:
    parse_scheduler_config(text.encode())


BAD = [
    # the document
    ("", "$", "is empty"),
    (" \n", "$", "is empty"),
    (b"\xff{}", "$", "is not UTF-8 text (byte 0)"),
    ('{"scoring": {}', "$", "is not JSON"),
    ('{"scoring": {}} {}', "$", "is not JSON: Extra data (line 1, column 17)"),
    ("[1]", "$", "must be an object, not a list"),
    ("NaN", "$", "must be an object, not a number"),
    ('{"scoring": {}}' + " " * MAX_BYTES, "$", "is larger than 1 MiB"),
    ("[" * 100_000, "$", "is nested too deeply"),
    ("{}", "$", "has the key of no known format"),
    ('{"scoring": {}, "nodeConfig": {}}', "$", "mixes formats, keep one: nodeConfig"),
    ('{"nodeDefaults": {}, "nodeConfig": {}}', "$", "mixes formats, keep one: nodeDefaults"),
    # anywhere
    ('{"scoring": {}, "scoring": {}}', "scoring", "is there more than once"),
    ('{"nodeConfig": {"cpu": {}, "cpu": {}}}', "nodeConfig.cpu", "is there more than once"),
    ('{"nodeConfig": {}, "dumpState": {"port": NaN}}', "dumpState.port", "NaN is not a number"),
    ('{"scoring": {"scorePeak": 1e999}}', "scoring.scorePeak", "1e999 is not a number"),
    ('{"scoring": {}, "watermark": -Infinity}', "watermark", "-Infinity is not a number"),
    (f'{{"scoring": {{}}, "watermark": {"9" * 5000}}}', "watermark", "is not a number that can"),
    (
        f'{{"scoring": {{}}, "reconcileWorkers": {"[" * 40}{"]" * 40}}}',
        "reconcileWorkers" + "[0]" * 31,
        "is nested too deeply",
    ),
    # unknown fields
    ('{"scoring": {}, "schedulername": "x"}', "schedulername", "did you mean schedulerName?"),
    (json.dumps({"scoring": {}, "k" * 80: 1}), "k" * 80, "unknown field"),
    (json.dumps({"scoring": {}, "k" * 81: 1}), f'["{"k" * 80}"]', "unknown field"),
    ('{"scoring": {}, "a b": 1}', '["a b"]', "unknown field"),
    ('{"scoring": {}, "\\ud800": 1}', '["\\ud800"]', "unknown field"),
    ('{"scoring": {"score_peak": 1}}', "scoring.score_peak", "did you mean scorePeak?"),
    ('{"nodeDefaults": {"gpu": {}}}', "nodeDefaults.gpu", "unknown field"),
    ('{"nodeDefaults": {"cpu": {"x": 1}}}', "nodeDefaults.cpu.x", "unknown field"),
    ('{"nodeConfig": {"cpu": {"system": 1}}}', "nodeConfig.cpu.system", "unknown field"),
    (
        '{"nodeDefaults": {"computeUnit": {"vCPUs": 1, "mem": "1Gi", "gpus": 1}}}',
        "nodeDefaults.computeUnit.gpus",
        "unknown field",
    ),
    (
        '{"nodeDefaults": {}, "nodeOverrides": [{"nodes": ["a"], "config": {}, "x": 1}]}',
        "nodeOverrides[0].x",
        "unknown field",
    ),
    # fields of another format
    ('{"nodeConfig": {}, "ignoredNamespaces": []}', "ignoredNamespaces", "`scoring` (v0.42 on)"),
    ('{"scoring": {}, "nodeOverrides": []}', "nodeOverrides", "`nodeDefaults` (v0.1 to v0.19)"),
    ('{"scoring": {}, "memBlockSize": "1Gi"}', "memBlockSize", "is a field of the format"),
    ('{"nodeDefaults": {}, "computeUnit": {}}', "computeUnit", "`nodeConfig` (v0.20 to v0.41)"),
    ('{"scoring": {}, "dumpState": null}', "dumpState", "is a field of the format"),
    # wrong kinds
    ('{"scoring": []}', "scoring", "must be an object, not a list"),
    ('{"nodeDefaults": {"cpu": 0.9}}', "nodeDefaults.cpu", "must be an object, not a number"),
    ('{"nodeConfig": {}, "nodeConfig ": {}}', '["nodeConfig "]', "did you mean nodeConfig?"),
    ('{"scoring": {"randomize": 1}}', "scoring.randomize", "must be true or false, not a number"),
    ('{"nodeConfig": {}, "doMigration": "no"}', "doMigration", "must be true or false"),
    ('{"nodeConfig": {}, "randomizeScores": 0}', "randomizeScores", "must be true or false"),
    ('{"scoring": {}, "schedulerName": 7}', "schedulerName", "must be a string, not a number"),
    ('{"scoring": {}, "schedulerName": ""}', "schedulerName", "must not be empty"),
    ('{"scoring": {}, "schedulerName": "\\udc00"}', "schedulerName", "half of a character"),
    ('{"scoring": {}, "ignoredNamespaces": "a"}', "ignoredNamespaces", "must be a list"),
    ('{"scoring": {}, "ignoredNamespaces": ["a", 1]}', "ignoredNamespaces[1]", "must be a string"),
    ('{"scoring": {}, "ignoredNamespaces": [null]}', "ignoredNamespaces[0]", "not null"),
    ('{"nodeConfig": {}, "ignoreNamespaces": [""]}', "ignoreNamespaces[0]", "must not be empty"),
    ('{"scoring": {}, "nodeMetricLabels": []}', "nodeMetricLabels", "must be an object"),
    ('{"scoring": {}, "nodeMetricLabels": {"a": 1}}', "nodeMetricLabels.a", "must be a string"),
    ('{"scoring": {}, "nodeMetricLabels": {"a-b": "c"}}', 'nodeMetricLabels["a-b"]', "no name"),
    ('{"scoring": {}, "nodeMetricLabels": {"__a": "c"}}', "nodeMetricLabels.__a", "no name"),
    # numbers out of range
    ('{"scoring": {"scorePeak": 1.5}}', "scoring.scorePeak", "between 0 and 1, not 1.5"),
    ('{"scoring": {"minUsageScore": -0.1}}', "scoring.minUsageScore", "between 0 and 1"),
    ('{"scoring": {"maxUsageScore": true}}', "scoring.maxUsageScore", "not true or false"),
    ('{"scoring": {"maxUsageScore": "0"}}', "scoring.maxUsageScore", "not a string"),
    ('{"nodeConfig": {"scorePeak": 2}}', "nodeConfig.scorePeak", "between 0 and 1"),
    ('{"scoring": {}, "watermark": 0}', "watermark", "between 0 and 1, above 0"),
    (
        '{"nodeDefaults": {"cpu": {"watermark": 90}}}',
        "nodeDefaults.cpu.watermark",
        "must be a number between 0 and 1",
    ),
    (
        '{"nodeDefaults": {"memory": {"watermark": "0.9"}}}',
        "nodeDefaults.memory.watermark",
        "not a string",
    ),
    # quantities
    (
        '{"nodeDefaults": {"cpu": {"system": "-1"}}}',
        "nodeDefaults.cpu.system",
        "'-1' is negative",
    ),
    (
        '{"nodeDefaults": {"memory": {"system": "half"}}}',
        "nodeDefaults.memory.system",
        "'half' is not a quantity",
    ),
    (
        '{"nodeDefaults": {"memory": {"system": true}}}',
        "nodeDefaults.memory.system",
        "must be a quantity, not true or false",
    ),
    (
        '{"nodeDefaults": {"memory": {"system": "1e30"}}}',
        "nodeDefaults.memory.system",
        "is more than",
    ),
    ('{"nodeDefaults": {}, "memBlockSize": 0}', "memBlockSize", "must be above 0"),
    ('{"nodeDefaults": {}, "memBlockSize": {}}', "memBlockSize", "must be a quantity"),
    # compute units
    (
        '{"nodeConfig": {}, "computeUnit": {"mem": "1Gi"}}',
        "computeUnit.vCPUs",
        "is missing",
    ),
    (
        '{"nodeConfig": {}, "computeUnit": {"vCPUs": "250m"}}',
        "computeUnit.mem",
        "is missing",
    ),
    (
        '{"nodeConfig": {}, "computeUnit": {"vCPUs": 0, "mem": "1Gi"}}',
        "computeUnit.vCPUs",
        "must be above 0",
    ),
    (
        '{"nodeConfig": {}, "computeUnit": {"vCPUs": 1, "mem": 4}}',
        "computeUnit.mem",
        "must be bytes such as 1Gi, not 4 (there is no memBlockSize)",
    ),
    (
        '{"nodeConfig": {}, "memBlockSize": "1Gi", "computeUnit": {"vCPUs": 1, "mem": "4Gi"}}',
        "computeUnit.mem",
        "must be a whole number of memBlockSize, 1 to 65535, not a string",
    ),
    (
        '{"nodeConfig": {}, "memBlockSize": "1Gi", "computeUnit": {"vCPUs": 1, "mem": 1.5}}',
        "computeUnit.mem",
        "not 1.5",
    ),
    (
        '{"nodeConfig": {}, "memBlockSize": "1Ti", "computeUnit": {"vCPUs": 1, "mem": 65}}',
        "computeUnit.mem",
        "with memBlockSize is more than",
    ),
    (
        '{"nodeConfig": {}, "computeUnit": "250m/1Gi"}',
        "computeUnit",
        "must be an object, not a string",
    ),
    (
        """{
            "nodeConfig": {"computeUnit": {"vCPUs": 1, "mem": "1Gi"}},
            "computeUnit": {"vCPUs": 1, "mem": "1Gi"}
        }""",
        "computeUnit",
        "is within nodeConfig too; keep one",
    ),
    # overrides
    ('{"nodeDefaults": {}, "nodeOverrides": {}}', "nodeOverrides", "must be a list"),
    ('{"nodeDefaults": {}, "nodeOverrides": [null]}', "nodeOverrides[0]", "must be an object"),
    (
        '{"nodeDefaults": {}, "nodeOverrides": [{"config": {}}]}',
        "nodeOverrides[0].nodes",
        "is missing",
    ),
    (
        '{"nodeDefaults": {}, "nodeOverrides": [{"nodes": [], "config": {}}]}',
        "nodeOverrides[0].nodes",
        "must not be empty",
    ),
    (
        '{"nodeDefaults": {}, "nodeOverrides": [{"nodes": "a", "config": {}}]}',
        "nodeOverrides[0].nodes",
        "must be a list, not a string",
    ),
    (
        '{"nodeDefaults": {}, "nodeOverrides": [{"nodes": ["a", ""], "config": {}}]}',
        "nodeOverrides[0].nodes[1]",
        "must not be empty",
    ),
    (
        '{"nodeDefaults": {}, "nodeOverrides": [{"nodes": ["a"]}]}',
        "nodeOverrides[0].config",
        "is missing",
    ),
    (
        """{"nodeDefaults": {}, "nodeOverrides": [
            {"nodes": ["a"], "config": {}},
            {"nodes": ["b"], "config": {"cpu": {"watermark": 2}}}
        ]}""",
        "nodeOverrides[1].config.cpu.watermark",
        "must be a number between 0 and 1",
    ),
]


@pytest.mark.parametrize(("content", "path", "reason"), BAD, ids=range(len(BAD)))
def test_bad_config_is_refused_with_the_path_of_its_field(
    content: bytes | str, path: str, reason: str
) -> None:
    (problem,) = problems_of(content)

    assert problem.startswith(f"{path}: ")
    assert reason in problem.removeprefix(path)


def test_every_problem_is_told_at_once() -> None:
    problems = problems_of(
        """{
          "memBlockSize": "1 GiB",
          "nodeDefaults": {
            "cpu": {"watermark": 7, "systm": 1},
            "memory": {"watermark": 0.9, "watermark": 0.8},
            "computeUnit": {"vCPUs": 1, "mem": 1}
          },
          "nodeOverrides": [{"nodes": [], "config": {"scorePeak": null, "cpu": []}}],
          "doMigration": NaN,
          "colour": "blue"
        }"""
    )

    assert [problem.partition(": ")[0] for problem in problems] == [
        "nodeDefaults.memory.watermark",
        "doMigration",
        "memBlockSize",
        "nodeDefaults.cpu.watermark",
        "nodeDefaults.cpu.systm",
        "nodeOverrides[0].nodes",
        "nodeOverrides[0].config.cpu",
        "colour",
    ]


def test_problems_have_an_end() -> None:
    unknown = {f"field{number}": 0 for number in range(30_000)}
    bad_items = {"ignoredNamespaces": [0] * 1000}

    for fields in (unknown, bad_items):
        assert len(problems_of(json.dumps({"scoring": {}} | fields))) == MAX_PROBLEMS


def test_many_overrides_are_asked_quickly() -> None:
    """Compiled globs once fell out of fnmatch's cache of 256 and were compiled at every call."""
    names = [f"node-{number}-*" for number in range(1000)]
    overrides = [{"nodes": names, "config": {"cpu": {"system": 1}}}]
    config = parse_scheduler_config(
        json.dumps({"nodeDefaults": {}, "nodeOverrides": overrides}).encode()
    )
    began = time.process_time()

    for number in range(1000):
        assert config.node_config(f"node-{number}-a").system.cpu == 1000
    assert config.node_config("other").system.cpu == 0

    assert time.process_time() - began < 5  # a hundredth of that; compiled each time, minutes


KEYS = st.sampled_from(
    [
        *("nodeDefaults", "nodeConfig", "scoring", "nodeOverrides", "nodes", "config", "cpu"),
        *("memory", "system", "watermark", "computeUnit", "vCPUs", "mem", "memBlockSize"),
        *("schedulerName", "ignoreNamespaces", "ignoredNamespaces", "nodeMetricLabels"),
        *("randomize", "scorePeak", "other"),
    ]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["1Gi", "250m", 0.5, 1]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=20,
)


@given(st.dictionaries(KEYS, VALUES, max_size=6).map(json.dumps).map(str.encode) | st.binary())
@example(b'{"scoring": NaN}')
@example(b'"\\ud800"')
def test_any_content_is_read_or_refused_with_paths(content: bytes) -> None:
    problems = []
    try:
        parse_scheduler_config(content)
    except ConfigError as refused:
        problems = refused.problems or ["none named"]

    assert all(": " in problem and problem.isprintable() for problem in problems)
