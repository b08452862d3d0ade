from __future__ import annotations

import json
from typing import Any

import pytest

from autoscale_enforcer.errors import WireError
from autoscale_enforcer.model.resources import MAX_MEM_BYTES, Resources
from autoscale_enforcer.wire.agent import decode_agent_request, encode_agent_answer
from autoscale_enforcer.wire.protocol import ProtocolVersion, effective_factor

GIB = 1 << 30
UNIT = Resources(250, GIB)
POD = {"name": "vm-0", "namespace": "default"}
SLOTS = [version for version in ProtocolVersion if not version.mem_in_bytes]
BYTES = [version for version in ProtocolVersion if version.mem_in_bytes]
WHOLE_CPU = [version for version in ProtocolVersion if not version.has_fractional_cpu]


def request(version: object, **fields: Any) -> dict[str, Any]:
    """A good request of 2 CPU and 8 GiB in that version, and then `fields`."""
    is_bytes = version in BYTES
    amount = {"vCPUs": 2, "mem": "8Gi" if is_bytes else 8}
    base: dict[str, Any] = {"protoVersion": version, "pod": POD, "resources": amount}
    base["metrics"] = {"loadAvg1M": 0.3}
    if is_bytes:
        base["computeUnit"] = {"vCPUs": "250m", "mem": "1Gi"}
    return base | fields


def body(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields).encode()


def refusal(fields: dict[str, Any]) -> WireError:
    with pytest.raises(WireError) as caught:
        decode_agent_request(body(fields))
    return caught.value


def answer(
    version: ProtocolVersion,
    permit: Resources,
    *,
    slot_bytes: int = GIB,
    unit: Resources = UNIT,
) -> Any:
    return json.loads(encode_agent_answer(version, permit, slot_bytes=slot_bytes, unit=unit))


def test_what_each_version_changed() -> None:
    table = {
        version.label: "".join(
            "x" if flag else "."
            for flag in (
                version.allows_null_metrics,
                version.has_fractional_cpu,
                version.has_last_permit,
                not version.answers_resource_unit,
                version.mem_in_bytes,
                version.sends_compute_unit,
            )
        )
        for version in ProtocolVersion
    }

    assert table == {
        "v1.0": "......",
        "v1.1": "x.....",
        "v2.0": "xx....",
        "v2.1": "xxx...",
        "v3.0": "xxxx..",
        "v4.0": "xxxxxx",
        "v5.0": "xxxxxx",
    }


@pytest.mark.parametrize("version", ProtocolVersion)
def test_every_version_is_read(version: ProtocolVersion) -> None:
    got = decode_agent_request(body(request(version)))

    assert got.version is version
    assert got.full_name == "default/vm-0"
    assert got.wanted(GIB) == Resources(2000, 8 * GIB)
    assert got.last_permit(GIB) is None
    assert got.compute_unit == (UNIT if version in BYTES else None)


@pytest.mark.parametrize("number", [0, -1, 8, 10**30])
def test_a_whole_number_that_is_no_version_is_told_the_range(number: int) -> None:
    refused = refusal(request(number))

    assert refused.path == "protoVersion"
    assert "v1.0 to v5.0" in refused.reason
    assert "1 to 7" in refused.reason


@pytest.mark.parametrize("value", [None, 7.5, 7.0, "7", True, [], {}])
def test_what_is_no_whole_number_is_no_version(value: object) -> None:
    assert refusal(request(value)).path == "protoVersion"


def test_a_version_is_required() -> None:
    fields = request(7)
    del fields["protoVersion"]

    assert refusal(fields).path == "protoVersion"


@pytest.mark.parametrize("version", ProtocolVersion)
@pytest.mark.parametrize("metrics", [{}, {"loadAvg1M": 1e300, "new": [1]}, {"loadAvg5M": None}])
def test_metrics_may_hold_anything(version: ProtocolVersion, metrics: dict[str, Any]) -> None:
    decode_agent_request(body(request(version, metrics=metrics)))


@pytest.mark.parametrize("version", list(ProtocolVersion)[1:])
def test_metrics_may_be_missing_from_v1_1_on(version: ProtocolVersion) -> None:
    fields = request(version)
    del fields["metrics"]

    decode_agent_request(body(fields))
    decode_agent_request(body(request(version, metrics=None)))


def test_metrics_must_be_there_in_v1_0() -> None:
    fields = request(1)
    del fields["metrics"]

    assert refusal(fields).path == "metrics"
    assert refusal(request(1, metrics=None)).path == "metrics"
    assert refusal(request(7, metrics=5)).path == "metrics"


def test_unknown_fields_are_ignored_at_every_level() -> None:
    known = request(7, lastPermit={"vCPUs": 1, "mem": "4Gi"})
    more = {
        key: value | {"new": {"a": [1]}} if isinstance(value, dict) else value
        for key, value in known.items()
    } | {"new": None}

    assert decode_agent_request(body(more)) == decode_agent_request(body(known))


@pytest.mark.parametrize("change", [str.lower, str.upper, str.title])
def test_keys_are_read_in_any_case(change: Any) -> None:
    known = request(7, lastPermit={"vCPUs": 1, "mem": "4Gi"})

    def recased(value: Any) -> Any:
        return (
            {change(key): recased(inner) for key, inner in value.items()}
            if isinstance(value, dict)
            else value
        )

    assert decode_agent_request(body(recased(known))) == decode_agent_request(body(known))


@pytest.mark.parametrize(
    ("cpu", "milli"),
    [(1, 1000), ("1", 1000), (0.25, 250), ("0.25", 250), ("250m", 250), (1.5, 1500)],
)
@pytest.mark.parametrize(
    "version", [version for version in ProtocolVersion if version not in WHOLE_CPU]
)
def test_cpu_is_a_number_or_a_quantity(version: int, cpu: object, milli: int) -> None:
    amount = request(version)["resources"] | {"vCPUs": cpu}

    assert decode_agent_request(body(request(version, resources=amount))).wanted(GIB).cpu == milli


@pytest.mark.parametrize(
    "mem", [4294967296, "4294967296", "4Gi", "4096Mi", "4294967296000m", 4294967296.0]
)
def test_memory_is_a_number_or_a_quantity(mem: object) -> None:
    amount = {"vCPUs": 1, "mem": mem}

    assert decode_agent_request(body(request(7, resources=amount))).wanted(1).mem == 4 * GIB


@pytest.mark.parametrize("version", WHOLE_CPU)
def test_v1_knows_whole_cpus_only(version: ProtocolVersion) -> None:
    for good in (2, "2", "2000m"):
        decode_agent_request(body(request(version, resources={"vCPUs": good, "mem": 8})))
    for bad in ("250m", 0.25, "1500m"):
        refused = refusal(request(version, resources={"vCPUs": bad, "mem": 8}))
        assert refused.path == "resources.vCPUs"
        assert version.label in refused.reason


@pytest.mark.parametrize("version", ProtocolVersion)
@pytest.mark.parametrize("field", ["vCPUs", "mem"])
@pytest.mark.parametrize(
    "value", [0, -1, "-1", "abc", "", None, True, [], {}, 1e300, "1e999999999"]
)
def test_amounts_that_no_vm_can_have(version: ProtocolVersion, field: str, value: object) -> None:
    amount = request(version)["resources"] | {field: value}

    assert refusal(request(version, resources=amount)).path == f"resources.{field}"


@pytest.mark.parametrize("version", SLOTS)
@pytest.mark.parametrize("slots", ["4", "4Gi", 1.5, 65536, 1e3])
def test_slots_are_whole_and_few(version: ProtocolVersion, slots: object) -> None:
    assert refusal(request(version, resources={"vCPUs": 1, "mem": slots})).path == "resources.mem"


def test_slots_of_a_large_size_stay_in_bounds() -> None:
    got = decode_agent_request(body(request(5, resources={"vCPUs": 1, "mem": 65535})))

    assert got.wanted(GIB).mem == 65535 * GIB
    with pytest.raises(WireError, match=r"resources\.mem"):
        got.wanted(MAX_MEM_BYTES)


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"pod": None}, "pod"),
        ({"pod": "default/vm-0"}, "pod"),
        ({"pod": {"namespace": "default"}}, "pod.name"),
        ({"pod": {"name": "vm-0", "namespace": ""}}, "pod.namespace"),
        ({"pod": {"name": "vm 0", "namespace": "default"}}, "pod.name"),
        ({"pod": {"name": "vm/0", "namespace": "default"}}, "pod.name"),
        ({"resources": None}, "resources"),
        ({"resources": 4}, "resources"),
        ({"resources": {}}, "resources.vCPUs"),
        ({"resources": {"vCPUs": 1}}, "resources.mem"),
        ({"computeUnit": None}, "computeUnit"),
        ({"computeUnit": {}}, "computeUnit.vCPUs"),
        ({"computeUnit": {"vCPUs": 0, "mem": "1Gi"}}, "computeUnit.vCPUs"),
        ({"computeUnit": {"vCPUs": 1, "mem": 0}}, "computeUnit.mem"),
        ({"computeUnit": {"vCPUs": 1}}, "computeUnit.mem"),
        ({"lastPermit": []}, "lastPermit"),
        ({"lastPermit": {"vCPUs": 1, "mem": "x"}}, "lastPermit.mem"),
    ],
)
def test_a_request_that_cannot_be_read_names_the_field(fields: dict[str, Any], path: str) -> None:
    assert refusal(request(7, **fields)).path == path


@pytest.mark.parametrize("bad", [b"", b"{", b"[]", b"null", b"7", b'{"protoVersion":\xff}'])
def test_a_body_that_is_no_object_is_refused(bad: bytes) -> None:
    with pytest.raises(WireError):
        decode_agent_request(bad)


@pytest.mark.parametrize("version", SLOTS)
@pytest.mark.parametrize("unit", [{"vCPUs": 0, "mem": 0}, {}, None, "x", {"vCPUs": []}])
def test_compute_unit_is_an_unknown_field_below_v4(version: int, unit: object) -> None:
    assert decode_agent_request(body(request(version, computeUnit=unit))).compute_unit is None


@pytest.mark.parametrize("version", ProtocolVersion)
def test_last_permit_counts_from_v2_1_on(version: ProtocolVersion) -> None:
    told = {"vCPUs": 1, "mem": "4Gi" if version in BYTES else 4}
    got = decode_agent_request(body(request(version, lastPermit=told)))

    expected = Resources(1000, 4 * GIB) if version.has_last_permit else None
    assert got.last_permit(GIB) == expected
    if not version.has_last_permit:
        decode_agent_request(body(request(version, lastPermit="nonsense")))


def test_last_permit_is_never_above_what_is_asked() -> None:
    got = decode_agent_request(body(request(7, lastPermit={"vCPUs": 9, "mem": "1Gi"})))

    assert got.last_permit(GIB) == Resources(2000, GIB)


@pytest.mark.parametrize("version", BYTES)
def test_the_factor_is_the_agents_own_from_v4_on(version: ProtocolVersion) -> None:
    own = Resources(500, 2 * GIB)

    assert effective_factor(version, requested=own, configured=UNIT) == own
    assert effective_factor(version, requested=own, configured=None) == own


@pytest.mark.parametrize(
    ("version", "unit", "factor"),
    [
        (ProtocolVersion.V3_0, UNIT, UNIT),
        (ProtocolVersion.V2_0, UNIT, UNIT),
        (ProtocolVersion.V1_1, UNIT, Resources(1000, 4 * GIB)),
        (ProtocolVersion.V1_0, Resources(2000, GIB), Resources(2000, GIB)),
        (ProtocolVersion.V1_0, Resources(1500, GIB), Resources(3000, 2 * GIB)),
        (ProtocolVersion.V1_0, Resources(300, GIB), Resources(3000, 10 * GIB)),
        (ProtocolVersion.V1_0, Resources(1, MAX_MEM_BYTES), Resources(1000, MAX_MEM_BYTES)),
    ],
)
def test_the_factor_is_the_configured_one_below_v4(
    version: ProtocolVersion, unit: Resources, factor: Resources
) -> None:
    assert effective_factor(version, requested=None, configured=unit) == factor


def test_no_factor_at_all_names_the_setting() -> None:
    with pytest.raises(WireError, match="--compute-unit"):
        effective_factor(ProtocolVersion.V3_0, requested=None, configured=None)


@pytest.mark.parametrize("version", SLOTS)
def test_slots_are_told_up_to_v3(version: ProtocolVersion) -> None:
    assert answer(version, Resources(1000, 4 * GIB))["permit"] == {"vCPUs": 1, "mem": 4}


@pytest.mark.parametrize("version", ProtocolVersion)
def test_the_unit_is_told_up_to_v2_1(version: ProtocolVersion) -> None:
    factor = effective_factor(
        version, requested=UNIT if version in BYTES else None, configured=UNIT
    )

    told = answer(version, Resources(1000, 4 * GIB), unit=factor)

    if version > ProtocolVersion.V2_1:
        assert set(told) == {"permit"}
    elif version in WHOLE_CPU:
        assert told["resourceUnit"] == {"vCPUs": 1, "mem": 4}
    else:
        assert told["resourceUnit"] == {"vCPUs": "250m", "mem": 1}


@pytest.mark.parametrize(
    ("permit", "words"),
    [
        (Resources(250, 512), {"vCPUs": "250m", "mem": 512}),
        (Resources(1000, 1536 << 20), {"vCPUs": 1, "mem": "1536Mi"}),
        (Resources(1500, 4 * GIB), {"vCPUs": "1500m", "mem": "4Gi"}),
        (Resources(0, 1_000_000_000), {"vCPUs": 0, "mem": "1000000000"}),
    ],
)
def test_amounts_leave_as_go_writes_them(permit: Resources, words: dict[str, Any]) -> None:
    for version in BYTES:
        assert answer(version, permit) == {"permit": words}


@pytest.mark.parametrize("version", WHOLE_CPU)
@pytest.mark.parametrize(("milli", "told"), [(1500, 1), (999, 0), (3000, 3)])
def test_v1_is_never_told_more_cpu_than_is_held(
    version: ProtocolVersion, milli: int, told: int
) -> None:
    assert answer(version, Resources(milli, GIB))["permit"]["vCPUs"] == told


def test_slots_are_rounded_down_in_a_permit_and_up_in_a_unit() -> None:
    told = answer(ProtocolVersion.V2_1, Resources(1000, 7 * GIB), slot_bytes=2 * GIB)

    assert told["permit"]["mem"] == 3
    assert told["resourceUnit"]["mem"] == 1
