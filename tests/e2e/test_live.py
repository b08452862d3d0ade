"""Three replicas between a real kube-scheduler and a real kube-apiserver."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.e2e.conftest import StartScheduler
from tests.e2e.harness.api import MIGRATIONS, NODES, PODS, VMS, Api, Object, until
from tests.e2e.harness.binaries import Binaries
from tests.e2e.harness.control_plane import SCHEDULER_NAME, ControlPlane, Scheduler
from tests.e2e.harness.kubelet import KubeletStandIn
from tests.e2e.harness.objects import migration, node, pod, vm, vm_pod
from tests.e2e.harness.service import (
    OUR_LABEL,
    Service,
    configure,
    deployed_account,
    make_own_pods,
    set_ready,
    shipped_configuration,
)
from tests.e2e.sums import books_of, sums
from tests.support.manifests import NAMESPACE
from tests.support.servers import Server

GIB = 1 << 30
QUICK_LEASE = ("--lease-lifetime=2s", "--lease-renew-every=500ms")


async def bound(api: Api, name: str, node_name: str, *, cpu: str = "500m") -> Object:
    """A pod that somebody else has bound."""
    made = pod(name, cpu=cpu, scheduler="somebody-else")
    made["spec"]["nodeName"] = node_name
    return await api.create(PODS, made)


async def until_books_agree(service: Service, api: Api, *, within: float = 10) -> None:
    """Wait until every replica's ledger is the sum over the API's pods."""

    async def agree() -> bool:
        wanted = sums(await api.items(PODS), service.permits)
        return all(
            [books_of(await service.nodes(at=at)) == wanted for at in range(len(service.replicas))]
        )

    await until(agree, "the ledger agrees with the API", within=within)


@pytest.mark.parametrize("sends_names", [True, False], ids=["names", "whole-nodes"])
async def test_pods_are_placed_and_booked(
    service: Service,
    api: Api,
    kubelet: KubeletStandIn,
    start_scheduler: StartScheduler,
    *,
    sends_names: bool,
) -> None:
    configuration = shipped_configuration(service.url)
    configuration["extenders"][0]["nodeCacheCapable"] = sends_names
    start_scheduler(configuration)
    for number in range(3):
        await api.create(NODES, node(f"n{number}", cpu="4"))
    for number in range(20):
        await api.create(PODS, pod(f"p{number}", cpu="500m"))

    await until_all_bound(api)

    await until_books_agree(service, api)
    assert sum(each["pods"] for each in (await service.nodes()).values()) == 20 + 3
    assert await service.breaches() == []


async def test_whole_flow_without_neonvm_and_whose_ledger(
    binaries: Binaries, kubeconfig: Path, valkey_server: Server
) -> None:
    """A cluster without the CRDs is served; its ledger is refused to a replica of another one."""
    with ControlPlane(binaries) as bare:
        async with bare.api() as api, KubeletStandIn(api):
            await configure(api, {"scoring": {}})
            await make_own_pods(api)
            rights = bare.kubeconfig(await deployed_account(api))
            async with Service(valkey_server, rights, count=1) as service:
                await api.create(NODES, node("n1"))
                with Scheduler(bare, shipped_configuration(service.url)):
                    for number in range(3):
                        await api.create(PODS, pod(f"p{number}"))
                    await until_all_bound(api)
                await until_books_agree(service, api)
                assert (await service.ask("p0", cpu="1"))[0] == 400

            async with Service(valkey_server, kubeconfig, count=0) as foreign:
                with pytest.raises(RuntimeError, match="the ledger is that of the cluster"):
                    await foreign.add("r9").start()


async def until_all_bound(api: Api, *, within: float = 30) -> None:
    async def all_bound() -> bool:
        return all(each["spec"].get("nodeName") for each in await api.items(PODS))

    await until(all_bound, "all pods bound", within=within)


async def test_a_node_that_returns_has_its_pods_and_a_new_capacity(
    service: Service, api: Api
) -> None:
    await api.create(NODES, node("n1", cpu="4"))
    await bound(api, "stays", "n1", cpu="1")
    await until_books_agree(service, api)

    await api.delete(NODES, "n1")
    gone = await until(lambda: _node(service, "n1", absent=True), "the node is absent")
    refused = await service.filter(await api.create(PODS, pod("asks")), "n1", at=2)
    await api.create(NODES, node("n1", cpu="2"))
    back = await until(lambda: _node(service, "n1", absent=False), "the node is back")

    assert gone["capacity"]["cpuMilli"] == 0
    assert gone["reserved"]["cpuMilli"] == 1000
    assert refused["FailedNodes"] == {"n1": "Node is not known to the reservation ledger"}
    assert back["capacity"]["cpuMilli"] == 2000
    assert back["reserved"]["cpuMilli"] == 1000
    assert await service.breaches() == []


async def _node(service: Service, name: str, *, absent: bool) -> Object | None:
    found = (await service.nodes()).get(name)
    return found if found and found["absent"] is absent else None


async def test_changes_of_pods_and_vms_are_followed(
    service: Service, api: Api, kubelet: KubeletStandIn
) -> None:
    """Resized in place; plugged without autoscaling; switched to it and back; moving away."""
    await api.create(NODES, node("n1", cpu="8"))
    await bound(api, "plain", "n1", cpu="1")
    for name in ("vm", "old"):
        machine = await api.create(VMS, vm(name, cpus=("250m", "500m", 2)))
        runner = vm_pod(machine, f"{name}-pod")
        if name == "old":  # as before NeonVM v0.27
            del runner["metadata"]["annotations"]["vm.neon.tech/resources"]
        runner["spec"]["nodeName"] = "n1"
        await api.create(PODS, runner)
    await until(lambda: has_reserved(service, 1000 + 500 + 500), "all are booked")

    await resize(api, "plain", "1500m")
    await until(lambda: has_reserved(service, 1500 + 500 + 500), "the resize is booked")
    await api.patch(VMS, "old", {"spec": {"guest": {"cpus": {"use": 1}}}})
    await until(lambda: has_reserved(service, 1500 + 500 + 1000), "what the VM has is booked")
    await plug(api, "vm-pod", "750m")
    await until(lambda: has_reserved(service, 1500 + 750 + 1000), "what the pod says is booked")

    assert (await service.ask("vm-pod", cpu="2"))[1]["vCPUs"] == "750m"  # no autoscaling
    await switch(api, "vm-pod", "true")
    await until(lambda: has_pod(service, "vm-pod", autoscaling=True), "autoscaling is on")
    assert (await service.ask("vm-pod", cpu="1500m"))[1]["vCPUs"] == "1500m"
    await api.create(MIGRATIONS, migration("moves", vm_name="vm"))
    status = {"status": {"sourcePodName": "vm-pod", "phase": "Running"}}
    await api.patch(MIGRATIONS, "moves", status, subresource="status")

    async def does_not_grow() -> bool:
        answers = [await service.ask("vm-pod", cpu=cpu) for cpu in ("1250m", "1500m")]
        return [permit["vCPUs"] for _, permit in answers] == ["1250m", "1250m"]

    await until(does_not_grow, "the source of a migration does not grow")
    await api.delete(MIGRATIONS, "moves")

    async def grows() -> bool:
        return bool((await service.ask("vm-pod", cpu="2"))[1]["vCPUs"] == 2)

    await until(grows, "it grows again")
    await switch(api, "vm-pod", "false")
    await until(lambda: has_reserved(service, 1500 + 750 + 1000), "what it uses counts again")
    assert await service.breaches() == []


async def has_reserved(service: Service, cpu: int) -> bool:
    found = (await service.nodes(at=2)).get("n1")
    return bool(found and found["reserved"]["cpuMilli"] == cpu)


async def has_pod(service: Service, name: str, **wanted: object) -> bool:
    found = await service.get(f"/api/v1/pods/default/{name}")
    return bool({key: found[key] for key in wanted} == wanted)


async def resize(api: Api, name: str, cpu: str) -> None:
    resources = {"requests": {"cpu": cpu, "memory": "128Mi"}}
    patch = {"spec": {"containers": [{"name": "main", "resources": resources}]}}
    await api.patch(PODS, name, patch, subresource="resize", strategy="strategic")


async def plug(api: Api, name: str, cpu: str) -> None:
    """What NeonVM's controller writes."""
    found = await api.get(PODS, name)
    guest = json.loads(found["metadata"]["annotations"]["vm.neon.tech/resources"])
    guest["cpus"]["use"] = cpu
    annotations = {"vm.neon.tech/resources": json.dumps(guest)}
    await api.patch(PODS, name, {"metadata": {"annotations": annotations}})


async def switch(api: Api, name: str, is_on: str) -> None:
    labels = {"autoscaling.neon.tech/enabled": is_on}
    await api.patch(PODS, name, {"metadata": {"labels": labels}})


async def test_agents_are_led_to_exactly_one_ready_replica(service: Service, api: Api) -> None:
    async with labelled_pods(api) as seen:
        first = await until(lambda: one_labelled(api), "a pod has the label")
        not_ready = {"conditions": [{"type": "Ready", "status": "False"}]}

        await set_ready(api, first, status=not_ready)
        asked_at = time.monotonic()
        second = await until(lambda: one_labelled(api, but=first), "another has it", within=15)
        took = time.monotonic() - asked_at
        await api.delete(PODS, second, namespace=NAMESPACE, grace_seconds=0)
        third = await until(lambda: one_labelled(api, but=second), "the last one", within=15)

    assert took < 10
    assert len({first, second, third}) == 3
    assert max(len(names) for names in seen) == 1  # never two, not even for a moment


async def one_labelled(api: Api, *, but: str = "") -> str:
    found = await api.items(PODS, namespace=NAMESPACE, labels=f"name={SCHEDULER_NAME}")
    names = [each["metadata"]["name"] for each in found]
    return names[0] if len(names) == 1 and names[0] != but else ""


@asynccontextmanager
async def labelled_pods(api: Api) -> AsyncIterator[list[set[str]]]:
    """The names of all pods that agents would follow, after each change."""
    seen: list[set[str]] = [set()]
    since = (await api.listing(PODS, namespace=NAMESPACE)).resource_version
    labels = "=".join(OUR_LABEL)

    async def look() -> None:
        async with api.watch(PODS, since=since, namespace=NAMESPACE, labels=labels) as events:
            async for event in events:
                metadata = event.object["metadata"]
                has = metadata["labels"].get("name") == SCHEDULER_NAME
                names = seen[-1] - {metadata["name"]}
                seen.append(
                    names | {metadata["name"]} if has and event.type != "DELETED" else names
                )

    looking = asyncio.create_task(look())
    try:
        yield seen
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


async def test_a_paused_former_leader_changes_nothing(
    api: Api, kubeconfig: Path, valkey_server: Server
) -> None:
    await configure(api, {"scoring": {}})
    await make_own_pods(api)
    await api.create(NODES, node("n1"))
    async with Service(valkey_server, kubeconfig, QUICK_LEASE) as service:
        old = await bound(api, "web-0", "n1")
        former = await service.until_led()
        at = next(at for at in range(3) if service.replicas[at] is not former)
        await until_books_agree(service, api)

        former.process.pause()
        await api.delete(PODS, "web-0", grace_seconds=0)
        await bound(api, "web-0", "n1", cpu="1")
        leader = await service.until_led(by_other_than=former.name)

        async def has_caught_up() -> bool:
            return bool(books_of(await service.nodes(at=at)) == sums(await api.items(PODS), {}))

        await until(has_caught_up, "the new leader has booked it")
        former.process.resume()
        await until_books_agree(service, api)
        await asyncio.sleep(2)  # for what it may still have to say

        await until_books_agree(service, api, within=1)
        assert service.leader() == leader.name
        assert await service.breaches() == []
        assert old["metadata"]["uid"] not in str(await service.get("/api/v1/pods/default/web-0"))


async def test_config_is_taken_live_and_a_bad_one_kept_out(service: Service, api: Api) -> None:
    await api.create(NODES, node("n1", cpu="4", memory="8Gi"))
    await bound(api, "large", "n1", cpu="3500m")
    await until_books_agree(service, api)
    system = {"cpu": {"system": "1"}, "memory": {"system": "1Gi"}}

    await configure(api, {"nodeDefaults": system, "ignoreNamespaces": ["kube-public"]})

    async def has_capacity(cpu: int) -> bool:
        found = [(await service.nodes(at=at))["n1"] for at in range(3)]
        return all(each["capacity"] == amounts(cpu, 7 * GIB) for each in found)

    await until(lambda: has_capacity(3000), "every replica has the new capacity")
    assert (await service.nodes())["n1"]["overCapacity"] is True
    await api.create(NODES, node("n2", cpu="4", memory="8Gi"))
    for at in range(3):
        filler = await api.create(PODS, pod(f"filler-{at}", namespace="kube-public"))
        assert await service.bind(filler, "n2", at=at) == ""
    await until(lambda: has_ignored(service, 300), "no replica holds room for fillers")

    await configure(api, {"nodeDefaults": {"cpu": {"system": "a lot"}}})
    for replica in service.replicas:
        await until(
            lambda replica=replica: says(replica.process.log(), "nodeDefaults.cpu.system"),  # type: ignore[misc]
            "the log names the bad field",
        )
    await api.create(NODES, node("n3", cpu="4", memory="8Gi"))
    await until(lambda: _node(service, "n3", absent=False), "the new node is known")
    await service.replicas[2].kill()
    await service.replicas[2].start()

    assert await has_capacity(3000)
    assert (await service.nodes(at=2))["n3"]["capacity"] == amounts(3000, 7 * GIB)


def amounts(cpu: int, memory: int) -> Object:
    return {"cpuMilli": cpu, "memoryBytes": memory}


async def has_ignored(service: Service, cpu: int) -> bool:
    found = (await service.nodes())["n2"]
    return bool(found["ignored"]["cpuMilli"] == cpu and found["reserved"]["cpuMilli"] == 0)


async def says(log: str, words: str) -> bool:
    return words in log
