"""The ConfigMap: found under either key, waited for briefly, and taken while the replica runs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import pytest
import redis.asyncio
from tests.support.books import settings_at
from tests.support.fake_api.faults import Fault, Lines, Refuse
from tests.support.fake_api.server import FakeApi
from tests.support.reflecting import QUICK
from tests.support.replica import until

from autoscale_enforcer.background import Background
from autoscale_enforcer.cluster.kubernetes import config_map
from autoscale_enforcer.cluster.kubernetes.client import KubeApi
from autoscale_enforcer.cluster.kubernetes.config_map import KEYS, NAME, ConfigMapWatch
from autoscale_enforcer.cluster.kubernetes.transport import ApiSettings
from autoscale_enforcer.config.live import LiveConfig
from autoscale_enforcer.errors import ConfigError, LedgerUnavailable
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.model.ids import NodeName

BAD = '{"scoring": {}, "watermark": 7}'
WHERE = f"kube-system/{NAME}"


def good(system_cpu: str = "1") -> str:
    cpu = {"system": system_cpu}
    unit = {"vCPUs": 0.25, "mem": 1}
    defaults = {"cpu": cpu, "memory": {"system": "1Gi"}, "computeUnit": unit}
    return json.dumps({"nodeDefaults": defaults, "memBlockSize": "1Gi"})


def put(api: FakeApi, text: str | None, *, key: str = KEYS[0]) -> str:
    """Store the ConfigMap; its version."""
    data = {key: text} if text is not None else {"another.json": "{}"}
    if WHERE in api.store.tables["configmaps"].rows:
        stored = api.store.update("configmaps", WHERE, lambda found: found.update(data=data))
    else:
        named = {"name": NAME, "namespace": "kube-system"}
        stored = api.store.create("configmaps", {"metadata": named, "data": data})
    return str(stored["metadata"]["resourceVersion"])


def system_cpu(live: LiveConfig) -> int:
    return live.current.node_config(NodeName("n1")).system.cpu


@pytest.fixture
async def ledger(redis_url: str) -> AsyncIterator[Ledger]:
    ledger = Ledger.open(settings_at(redis_url, cluster="default"))
    yield ledger
    await ledger.close()


Watch = Callable[[], Awaitable[tuple[ConfigMapWatch, LiveConfig]]]


@pytest.fixture
async def watch(
    api: FakeApi, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Watch]:
    """`await watch()`: one replica's watch, under way."""
    monkeypatch.setattr(config_map, "WAIT_FOR_FIRST", 0.3)
    async with KubeApi(api.access()) as client, Background() as background:

        async def start() -> tuple[ConfigMapWatch, LiveConfig]:
            live = LiveConfig()
            watch = ConfigMapWatch(client, live, ledger)
            background.start("config", watch.run)
            return watch, live

        yield start


async def is_at(live: LiveConfig, version: str) -> None:
    async def there() -> bool:
        return live.version == version

    await until(there)


async def is_refused(live: LiveConfig, times: int) -> None:
    async def there() -> bool:
        return live.refused >= times

    await until(there)


def test_replicas_wait_five_seconds() -> None:
    """The reference's own limit."""
    assert config_map.WAIT_FOR_FIRST == 5.0


@pytest.mark.parametrize("key", KEYS)
async def test_config_is_found_under_either_key(api: FakeApi, watch: Watch, key: str) -> None:
    version = put(api, good("2"), key=key)

    first, live = await watch()
    await first.first()

    assert (live.version, system_cpu(live), live.problems) == (version, 2000, [])
    (listed,) = api.requests("list", "configmaps")
    assert listed.path == "/api/v1/namespaces/kube-system/configmaps"
    assert listed.query["fieldSelector"] == f"metadata.name={NAME}"


@pytest.mark.parametrize(
    ("there", "words"),
    [(False, f"ConfigMap {WHERE} has not come in 0.3 s"), (True, f"data: has no key {KEYS[0]}")],
    ids=["no ConfigMap", "no key"],
)
async def test_a_first_config_that_does_not_come_is_a_clear_error(
    api: FakeApi, watch: Watch, there: bool, words: str
) -> None:
    if there:
        put(api, None)
    first, live = await watch()

    with pytest.raises(ConfigError, match=words):
        await first.first()
    assert live.version == ""


async def test_a_first_config_may_come_a_little_later(api: FakeApi, watch: Watch) -> None:
    first, live = await watch()
    await api.until("watch", "configmaps", 1)

    version = put(api, good())
    await first.first()

    assert live.version == version


async def test_a_good_update_is_taken_without_a_restart(api: FakeApi, watch: Watch) -> None:
    put(api, good("1"))
    first, live = await watch()
    await first.first()

    await is_at(live, put(api, good("3")))

    assert system_cpu(live) == 3000


@pytest.mark.parametrize(
    "fault",
    [Lines(), Refuse(500), Refuse(503, retry_after=0)],
    ids=["leaves it out", "is refused", "finds the API busy"],
)
async def test_an_update_that_the_watch_never_tells_is_taken_by_a_list(
    api: FakeApi, watch: Watch, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    """No compare reads the ConfigMap: such a replica never heard of a config again."""
    quick = replace(QUICK, list_every=timedelta(milliseconds=50))
    monkeypatch.setattr(config_map, "FOLLOWED", quick)
    put(api, good("1"))
    api.always("watch", "configmaps", fault)
    first, live = await watch()
    await first.first()
    await api.until("watch", "configmaps", 1)

    await is_at(live, put(api, good("3")))

    assert system_cpu(live) == 3000


def test_an_update_that_the_watch_never_tells_is_taken_within_five_minutes() -> None:
    """A watch begun just before a list is due may be silent to its end, and the list be slow."""
    settings, api = config_map.FOLLOWED, ApiSettings()

    watched = settings.watch_lasts * 1.25 + api.request + api.watch_slack
    paused = settings.longest_pause * 1.5

    assert settings.list_every is not None
    assert settings.list_every + watched + paused + api.page <= timedelta(minutes=5)


async def test_a_bad_update_is_kept_out_and_counted_once(
    api: FakeApi, watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    version = put(api, good("1"))
    first, live = await watch()
    await first.first()

    put(api, BAD)
    await is_refused(live, 1)
    for after in range(2, 4):  # relists show it again
        api.next("watch", "configmaps", Refuse(410, "Expired"))
        api.end_watches()
        await api.until("list", "configmaps", after)
    await is_at(live, put(api, good("2")))

    assert live.refused == 1
    assert live.problems == []
    assert "watermark" in caplog.text
    assert version != live.version


async def test_what_holds_stays_when_the_config_map_goes(api: FakeApi, watch: Watch) -> None:
    version = put(api, good("1"))
    first, live = await watch()
    await first.first()

    api.store.remove("configmaps", WHERE)
    later = put(api, good("2"))
    await is_at(live, later)

    assert version != later


@pytest.mark.parametrize(
    ("bad", "words"), [(BAD, "watermark"), (None, KEYS[0])], ids=["bad text", "no key"]
)
async def test_a_replica_that_starts_beside_a_bad_config_runs_on_the_last_good_one(
    api: FakeApi, watch: Watch, ledger: Ledger, bad: str | None, words: str
) -> None:
    """A ConfigMap that had lost its key told nobody, and no replica started beside it."""
    kept = put(api, good("2"))
    first, before = await watch()
    await first.first()
    put(api, bad)
    await is_refused(before, 1)
    assert (system_cpu(before), words in before.problems[0]) == (2000, True)

    second, live = await watch()
    await second.first()

    assert (live.version, system_cpu(live)) == (kept, 2000)
    assert words in live.problems[0]
    await is_at(live, put(api, good("4")))
    assert (system_cpu(live), live.problems) == (4000, [])


async def test_a_replica_that_starts_beside_a_bad_config_and_no_good_one_ends(
    api: FakeApi, watch: Watch
) -> None:
    put(api, BAD)
    first, _ = await watch()

    with pytest.raises(ConfigError, match="watermark"):
        await first.first()


async def test_the_last_good_config_is_waited_for_while_redis_is_away(
    api: FakeApi, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_map, "RETRY_AFTER", 0.001)
    troubles = [LedgerUnavailable("away"), LedgerUnavailable("away")]

    async def read(_: Ledger) -> tuple[str, bytes]:
        if troubles:
            raise troubles.pop()
        return "7", good("3").encode()

    monkeypatch.setattr(Ledger, "read_config", read)
    put(api, BAD)
    first, live = await watch()

    await first.first()

    assert (live.version, system_cpu(live)) == ("7", 3000)


async def test_a_ledger_that_lost_the_config_is_given_it_again(
    api: FakeApi, watch: Watch, ledger: Ledger, raw_client: redis.asyncio.Redis
) -> None:
    """A replica that started after a loss beside a bad ConfigMap had none to run on."""
    version = put(api, good("2"))
    first, _ = await watch()
    await first.keep()  # nothing has come yet
    await first.first()
    await raw_client.flushall()

    await first.keep()

    assert await ledger.read_config() == (version, good("2").encode())


async def test_a_config_holds_though_the_ledger_cannot_keep_it(
    api: FakeApi,
    watch: Watch,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise LedgerUnavailable("away")

    monkeypatch.setattr(Ledger, "put_config", away)
    version = put(api, good("2"))
    first, live = await watch()

    await first.first()

    assert live.version == version
    assert "not kept for other replicas yet" in caplog.text
