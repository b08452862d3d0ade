"""The sums that Lua does with doubles are those that Python does with whole numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscale_enforcer.ledger.scripts import scripts_folder
from autoscale_enforcer.model.resources import MAX_MEM_BYTES, Overcommit, Resources
from autoscale_enforcer.model.rows import newer
from tests.support.servers import Server, servers_by_kind

AMOUNT = st.integers(0, MAX_MEM_BYTES)
OVER = st.integers(100, 100_000)


@pytest.fixture(scope="module")
def server() -> object:
    with servers_by_kind() as servers:
        servers["valkey"] = Server("valkey").__enter__()
        yield servers["valkey"]


def in_lua(server: Server, function: str, *arguments: int | str) -> bytes | int:
    code = (scripts_folder() / "lib" / f"{function}.lua").read_text()
    passed = ", ".join(
        f"tonumber(ARGV[{i}])" if isinstance(value, int) else f"ARGV[{i}]"
        for i, value in enumerate(arguments, 1)
    )
    code += f"\nlocal answer = {function}({passed})"
    code += "\nreturn type(answer) == 'number' and string.format('%d', answer) or answer"
    with server.client() as client:
        answer = client.eval(code, 0, *arguments)
    assert answer is None or isinstance(answer, (bytes, int))
    return answer or 0


@given(amount=AMOUNT, over=OVER)
def test_charge_is_rounded_down_exactly(server: Server, amount: int, over: int) -> None:
    charged = Overcommit(over, over).charge(Resources(amount, amount))

    assert int(in_lua(server, "charge", amount, over)) == charged.mem


@given(left=st.integers(-MAX_MEM_BYTES, MAX_MEM_BYTES), over=OVER, step=st.integers(1, 1 << 40))
def test_room_for_is_whole_steps_exactly(server: Server, left: int, over: int, step: int) -> None:
    room = max(left * over // 1000 // step * step, 0)

    assert int(in_lua(server, "room_for", left, over, step)) == room


VERSION = st.one_of(st.just("-"), st.integers(1, 1 << 80).map(str))


@given(left=VERSION, right=VERSION)
def test_newer_compares_versions_of_any_length(server: Server, left: str, right: str) -> None:
    assert bool(in_lua(server, "newer", left, right)) == newer(left, right)
