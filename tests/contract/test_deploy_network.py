"""The ways between the pods in the manifests, and the Redis and Sentinels among them."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path

from autoscale_enforcer.ledger.connection import ConnectionSettings, connector
from tests.support.containers import DOORS
from tests.support.manifests import (
    ENFORCER,
    NAME_LABEL,
    NAMESPACE,
    REDIS,
    SCHEDULER,
    SENTINEL,
    Object,
    container,
    environment,
    one,
    pod_templates,
    read,
)

DNS, API_SERVER = {("UDP", 53), ("TCP", 53)}, {("TCP", 443), ("TCP", 6443)}
REDIS_DOORS = ((REDIS, 6379), (SENTINEL, 26379))


def peers(manifests: list[Object], rule: Object, way: str) -> set[str]:
    """Our workloads that a rule names; those of others and `anywhere` are left out."""
    found = set()
    for peer in rule.get(way, []):
        if "namespaceSelector" in peer:
            continue
        selector = peer["podSelector"]
        names = [selector.get("matchLabels", {}).get(NAME_LABEL)]
        for expression in selector.get("matchExpressions", []):
            names += expression["values"]
        found |= {name for name in names if name}
    assert found <= pod_templates(manifests).keys()
    return found


def ways(manifests: list[Object], kind: str) -> set[tuple[str, str, int]]:
    """Who may reach whom at which port, by the policies of one end."""
    found = set()
    for policy in (each for each in manifests if each["kind"] == "NetworkPolicy"):
        own = policy["spec"]["podSelector"]["matchLabels"][NAME_LABEL]
        for rule in policy["spec"].get(kind, []):
            for other in peers(manifests, rule, "from" if kind == "ingress" else "to"):
                ends = (other, own) if kind == "ingress" else (own, other)
                found |= {(*ends, port["port"]) for port in rule["ports"]}
    return found


def test_ways_between_our_pods_are_open_at_both_ends(manifests: list[Object]) -> None:
    expected = {(SCHEDULER, ENFORCER, DOORS[0]), (ENFORCER, REDIS, 6379)}
    if SENTINEL in pod_templates(manifests):
        expected |= {(a, b, port) for a in (REDIS, SENTINEL) for b, port in REDIS_DOORS}
        expected |= {(ENFORCER, SENTINEL, 26379)}

    assert ways(manifests, "ingress") == ways(manifests, "egress") == expected


def test_every_pod_is_behind_a_policy_of_both_ways(manifests: list[Object]) -> None:
    for name in pod_templates(manifests):
        policy = one(manifests, "NetworkPolicy", name)["spec"]

        assert policy["policyTypes"] == ["Ingress", "Egress"]
        assert all(rule.get("from") for rule in policy.get("ingress", [])), "open to everybody"


def test_others_get_in_by_their_own_door(manifests: list[Object]) -> None:
    agents, metrics = (
        rule
        for rule in one(manifests, "NetworkPolicy", ENFORCER)["spec"]["ingress"]
        if "namespaceSelector" in rule["from"][0]
    )

    assert agents["from"][0]["podSelector"]["matchLabels"] == {"name": "autoscaler-agent"}
    assert [port["port"] for port in agents["ports"]] == [DOORS[1]]
    assert [port["port"] for port in metrics["ports"]] == [DOORS[2]]


def test_who_asks_the_api_server_gets_out_to_it_and_to_dns(manifests: list[Object]) -> None:
    for name in (ENFORCER, SCHEDULER):
        rules = one(manifests, "NetworkPolicy", name)["spec"]["egress"]
        anywhere = [rule for rule in rules if "to" not in rule]
        ports = [{(port["protocol"], port["port"]) for port in rule["ports"]} for rule in anywhere]

        assert ports == [DNS, API_SERVER]


def test_redis_url_is_of_servers_that_are_there(manifests: list[Object]) -> None:
    url = environment(manifests, pod_templates(manifests)[ENFORCER])["AE_REDIS_URL"]
    hosts = re.findall(r"([\w.-]+):(\d+)", url)
    kept = {each["metadata"]["name"]: each["spec"] for each in stateful_sets(manifests)}

    connector(ConnectionSettings(url=url), slot_key="{a}")  # ConfigError where it is none
    if url.startswith("redis://"):
        assert hosts == [(f"{REDIS}.{NAMESPACE}.svc", "6379")]
        assert kept[REDIS]["replicas"] == 1
    else:
        count = kept[SENTINEL]["replicas"]
        domain = f"{SENTINEL}.{NAMESPACE}.svc"
        assert hosts == [(f"{SENTINEL}-{i}.{domain}", "26379") for i in range(count)]


def stateful_sets(manifests: list[Object]) -> list[Object]:
    found = [each for each in manifests if each["kind"] == "StatefulSet"]
    for each in found:
        assert each["spec"]["serviceName"] == each["metadata"]["name"]
        assert one(manifests, "Service", each["metadata"]["name"])
    return found


def redis_words(manifests: list[Object]) -> list[str]:
    """The command line of a Redis, its script's included."""
    command: list[str] = container(pod_templates(manifests)[REDIS])["command"]
    if command[0] == "redis-server":
        return command
    script = one(manifests, "ConfigMap", f"{REDIS}-scripts")["data"][Path(command[1]).name]
    return shlex.split(script.partition("exec redis-server")[2])


def test_redis_keeps_what_it_is_told(manifests: list[Object]) -> None:
    words = redis_words(manifests)
    kept = dict(itertools.pairwise(words))
    spec = pod_templates(manifests)[REDIS]["spec"]
    (claim,) = one(manifests, "StatefulSet", REDIS)["spec"]["volumeClaimTemplates"]
    mounts = {each["name"]: each["mountPath"] for each in spec["containers"][0]["volumeMounts"]}

    assert kept["--appendonly"] == "yes"
    assert kept["--maxmemory-policy"] == "noeviction"
    assert kept["--dir"] == mounts[claim["metadata"]["name"]] == "/data"
    limit = spec["containers"][0]["resources"]["limits"]["memory"]
    assert 2 * int(kept["--maxmemory"].removesuffix("mb")) < int(limit.removesuffix("Mi"))


def test_replicated_redis_refuses_writes_that_nobody_copies() -> None:
    words = redis_words(read("sentinel"))

    assert words[words.index("--min-replicas-to-write") + 1] == "1"
    assert int(words[words.index("--min-replicas-max-lag") + 1]) <= 5


def test_sentinels_speak_in_names_and_agree_by_majority() -> None:
    manifests = read("sentinel")
    script = one(manifests, "ConfigMap", f"{REDIS}-scripts")["data"]["start-sentinel.sh"]
    (quorum,) = re.findall(r"(?m)^sentinel monitor \w+ \$primary 6379 (\d)$", script)
    replicas = one(manifests, "StatefulSet", SENTINEL)["spec"]["replicas"]

    assert int(quorum) == replicas // 2 + 1
    for setting in ("resolve-hostnames", "announce-hostnames"):
        assert f"sentinel {setting} yes" in script


def test_names_given_to_redis_and_sentinels_are_theirs() -> None:
    manifests = read("sentinel")
    for name in (REDIS, SENTINEL):
        found = {
            entry["name"]: entry.get("value")
            for entry in container(pod_templates(manifests)[name])["env"]
        }

        assert found["SELF"] == f"$(POD_NAME).{name}.{NAMESPACE}.svc"
        assert found["FIRST"] == f"{REDIS}-0.{REDIS}.{NAMESPACE}.svc"
        assert found["SENTINELS"] == f"{SENTINEL}.{NAMESPACE}.svc"
        assert one(manifests, "Service", name)["spec"]["publishNotReadyAddresses"] is True
