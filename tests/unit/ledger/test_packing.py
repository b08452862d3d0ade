"""A script's run is packed as redis-py would pack it."""

from __future__ import annotations

import hiredis
import pytest

from autoscale_enforcer.ledger.keys import Keys
from autoscale_enforcer.ledger.packing import Packer
from autoscale_enforcer.ledger.scripts import load_scripts

KEYS = Keys("t")
SCRIPTS = load_scripts()
CASES = [(name, False) for name in sorted(SCRIPTS)] + [("put_pod", True)]
VALUES: list[str | int | bytes] = ["text", 1 << 53, b"\r\n*1\r\n", "", "\N{SNOWMAN}"]


@pytest.mark.parametrize(("name", "building"), CASES)
def test_run_is_one_evalsha_with_all_keys_and_arguments(name: str, building: bool) -> None:
    script, packer, reader = SCRIPTS[name], Packer(KEYS), hiredis.Reader()
    arguments = [VALUES[at % len(VALUES)] for at in range(len(script.arg_names))]
    keys = KEYS.keys(script.key_names, building=building)
    expected = ["EVALSHA", script.sha, len(keys), *keys, *arguments]

    for _ in range(2):  # the second from what the first has left
        reader.feed(packer.run(script, arguments, building=building))

    words = [each if isinstance(each, bytes) else str(each).encode() for each in expected]
    assert [reader.gets(), reader.gets(), reader.gets()] == [words, words, False]
