"""What autoscaler-agents ask and are told, in every version of their protocol at once.

Field names are those of the protocol. Which version allows what is in `protocol`.
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from autoscale_enforcer.errors import ObjectError, WireError
from autoscale_enforcer.model.names import name_problem
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.objects.quantity import cpu_milli, format_cpu, format_mem, mem_bytes
from autoscale_enforcer.wire.agent_request import AgentAmount, AgentRequest
from autoscale_enforcer.wire.agent_usual import read_usual
from autoscale_enforcer.wire.envelope import (
    ABSENT,
    Envelope,
    check_text,
    decode,
    given,
    is_given,
    refuse_first,
    required,
)
from autoscale_enforcer.wire.protocol import SPOKEN, ProtocolVersion

MAX_SLOTS = 65535
"""Agents keep slots in 16 bits."""

_SLOTS = re.compile(r"[0-9]{1,5}")


class _Request(msgspec.Struct, forbid_unknown_fields=True):
    version: int | None = msgspec.field(name="protoVersion", default=None)
    pod: msgspec.Raw = ABSENT
    compute_unit: msgspec.Raw = msgspec.field(name="computeUnit", default=ABSENT)
    resources: msgspec.Raw = ABSENT
    last_permit: msgspec.Raw = msgspec.field(name="lastPermit", default=ABSENT)
    metrics: msgspec.Raw = ABSENT


class _Pod(msgspec.Struct, forbid_unknown_fields=True):
    namespace: str | None = None
    name: str | None = None


class _Amount(msgspec.Struct, forbid_unknown_fields=True):
    cpu: msgspec.Raw = msgspec.field(name="vCPUs", default=ABSENT)
    mem: msgspec.Raw = ABSENT


_REQUEST = Envelope(_Request)
_POD = Envelope(_Pod)
_AMOUNT = Envelope(_Amount)
_TEXT = msgspec.json.Decoder(str)
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


def decode_agent_request(body: bytes) -> AgentRequest:
    """An AgentRequest of any version we speak; raises WireError."""
    check_text(body)
    return read_usual(body) or read_any(body)


def read_any(body: bytes) -> AgentRequest:
    """The same, whatever the version and however it is written."""
    sent = _REQUEST.read(body)
    version = _read_version(sent.version)
    namespace, name = _read_pod_name(sent.pod)
    _check_metrics(version, sent.metrics)
    asked = _read_amount(version, sent.resources, "resources")
    _check_asked(version, asked)
    return AgentRequest(
        version=version,
        namespace=namespace,
        name=name,
        asked=asked,
        told=_read_last_permit(version, sent.last_permit),
        compute_unit=_read_compute_unit(version, sent.compute_unit),
    )


@lru_cache(maxsize=4096)
def encode_agent_answer(
    version: ProtocolVersion, permit: Resources, *, slot_bytes: int, unit: Resources
) -> bytes:
    """A PluginResponse in the words of that version; `unit` is the effective factor.

    What the version cannot say exactly is told smaller than what is held, never larger. The
    `migrate` field is left out, as Go leaves it out: telling an agent of a migration is final.
    """
    whole = permit
    if not version.has_fractional_cpu:
        whole = Resources(permit.cpu // 1000 * 1000, permit.mem)
    answer = {"permit": _amount_words(version, whole, slots=permit.mem // slot_bytes)}
    if version.answers_resource_unit:
        # Rounded up: agents divide by it.
        answer["resourceUnit"] = _amount_words(version, unit, slots=-(-unit.mem // slot_bytes))
    return msgspec.json.encode(answer)


def _amount_words(
    version: ProtocolVersion, amount: Resources, *, slots: int
) -> dict[str, int | str]:
    mem = format_mem(amount.mem) if version.mem_in_bytes else min(slots, MAX_SLOTS)
    return {"vCPUs": format_cpu(amount.cpu), "mem": mem}


def _read_version(number: int | None) -> ProtocolVersion:
    if number is None:
        raise WireError("protoVersion", f"is required; {SPOKEN}")
    try:
        return ProtocolVersion(number)
    except ValueError:
        raise WireError("protoVersion", f"is not a version we know; {SPOKEN}") from None


def _read_pod_name(raw: msgspec.Raw) -> tuple[str, str]:
    sent = _POD.read(given(raw, "pod"), "pod")
    namespace = required(sent.namespace, "pod.namespace")
    name = required(sent.name, "pod.name")
    problems = {"pod.namespace": name_problem(namespace), "pod.name": name_problem(name)}
    refuse_first(problems.items())
    return namespace, name


def _check_metrics(version: ProtocolVersion, raw: msgspec.Raw) -> None:
    """Metrics mean nothing to us, but an agent that sends nonsense is not one we know."""
    if is_given(raw):
        decode(_OBJECT, raw, "metrics")
    elif not version.allows_null_metrics:
        raise WireError("metrics", f"is required in protocol {version.label}")


def _check_asked(version: ProtocolVersion, asked: AgentAmount) -> None:
    # A Go reader takes an absent field for zero and would book zero: room that the VM still uses
    # would be given away.
    cpu_problem = "" if asked.cpu else "must be more than zero"
    if not version.has_fractional_cpu and asked.cpu % 1000:
        cpu_problem = f"must be whole CPUs in protocol {version.label}"
    mem_problem = "" if asked.mem else "must be more than zero"
    refuse_first([("resources.vCPUs", cpu_problem), ("resources.mem", mem_problem)])


def _read_last_permit(version: ProtocolVersion, raw: msgspec.Raw) -> AgentAmount | None:
    if not (version.has_last_permit and is_given(raw)):
        return None
    return _read_amount(version, raw, "lastPermit")


def _read_compute_unit(version: ProtocolVersion, raw: msgspec.Raw) -> Resources | None:
    if not version.sends_compute_unit:
        return None
    unit = _read_amount(version, raw, "computeUnit")
    problem = "must be more than zero"
    refuse_first(
        [
            ("computeUnit.vCPUs", "" if unit.cpu else problem),
            ("computeUnit.mem", "" if unit.mem else problem),
        ]
    )
    return Resources(unit.cpu, unit.mem)


def _read_amount(version: ProtocolVersion, raw: msgspec.Raw, path: str) -> AgentAmount:
    sent = _AMOUNT.read(given(raw, path), path)
    cpu = _read_cpu(sent.cpu, f"{path}.vCPUs")
    read_mem = _read_bytes if version.mem_in_bytes else _read_slots
    return AgentAmount(cpu, read_mem(sent.mem, f"{path}.mem"), version.mem_in_bytes)


def _read_cpu(raw: msgspec.Raw, path: str) -> int:
    try:
        return cpu_milli(_quantity_text(raw, path))
    except ObjectError as error:
        raise WireError(path, error.reason) from error


def _read_bytes(raw: msgspec.Raw, path: str) -> int:
    try:
        return mem_bytes(_quantity_text(raw, path))
    except ObjectError as error:
        raise WireError(path, error.reason) from error


def _read_slots(raw: msgspec.Raw, path: str) -> int:
    text = _json_text(raw)
    if not _SLOTS.fullmatch(text) or int(text) > MAX_SLOTS:
        raise WireError(path, f"must be a whole number of memory slots, at most {MAX_SLOTS}")
    return int(text)


def _quantity_text(raw: msgspec.Raw, path: str) -> str:
    """A quantity's text, whether it came as a string or as a number: no float is ever made."""
    text = _json_text(raw)
    if text.startswith('"'):
        return decode(_TEXT, text.encode(), path)
    if text[0] not in "-0123456789":
        raise WireError(path, "must be a number or a quantity")
    return text


def _json_text(raw: msgspec.Raw) -> str:
    """The JSON text of a value; an absent one is zero, as to Go."""
    return bytes(raw).decode() if is_given(raw) else "0"
