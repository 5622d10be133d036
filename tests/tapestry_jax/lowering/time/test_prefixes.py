"""Planned prefixes beside infinities: what nobody reads is not merged, and has no slope that could be NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from combinators.numerics import row_scan
from tapestry_jax.lowering.time import prefixes, scan
from tapestry_jax.lowering.time.scan_block import ScanBlock
from tests.combinators.numerics.test_dropped_prefixes import PREFIXES, SIZE, compare, numbers, product
from tests.damaged import damaged
from tests.simulated.sampled import computed

# Eleven steps leave padding everywhere; on eight devices two of them hold no step.
PLANS: dict[str, tuple[int, Any]] = {
    "two": (2, "data"),
    "eight": (8, "data"),
    "chunks": (1, tp.chunks(3)),
    "both": (2, ("data", tp.chunks(2))),
}
QUICK = (("chunks", False, True), ("both", True, False), ("eight", False, True))
CASES = [
    pytest.param(plan, *how, marks=() if (plan, *how) in QUICK else pytest.mark.thorough)
    for plan in PLANS
    for how in PREFIXES
]


def planned(plan: str, reverse: bool, exclusive: bool, size: int = SIZE) -> Any:
    devices, entry = PLANS[plan]
    graph = tp.trace(product(reverse, exclusive), np.ones(size, np.float32))
    return tp.plan(graph, tp.mesh(data=devices), {"t": entry}).compile()


def compare_all(run: Any, reverse: bool, exclusive: bool) -> None:
    for at in (0, 5, SIZE - 1):
        compare(run, numbers(at), PREFIXES[reverse, exclusive])


@pytest.mark.parametrize(("plan", "reverse", "exclusive"), CASES)
@pytest.mark.parametrize("rows", ["tree", pytest.param("rows", marks=pytest.mark.thorough)])
def test_planned_slopes_are_those_of_the_steps_of_each_prefix(
    plan: str, reverse: bool, exclusive: bool, rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if rows == "rows":
        monkeypatch.setattr(row_scan, "ROWS", row_scan.Rows(3, 4))
    compare_all(planned(plan, reverse, exclusive), reverse, exclusive)


@pytest.mark.parametrize("plan", ["chunks", pytest.param("eight", marks=pytest.mark.thorough)])
def test_behind_nothing_but_padding_stands_the_identity(plan: str) -> None:
    # Ten steps in blocks of four: of the last one, which a scan from the end meets first, two are padding.
    x = np.arange(1, 11, dtype=np.float32)
    wanted = np.append(np.cumprod(x[:0:-1])[::-1], 1)
    np.testing.assert_allclose(computed(planned(plan, True, True, 10), x), wanted)


MUTANTS: dict[str, tuple[Any, str, str, tuple[str, bool, bool]]] = {
    "a total that no turn reads": (
        ScanBlock.is_followed.fget,
        "return follows & (turn > 0 if self.reverse else turn < self.here.size(loops) - 1)",
        "return True",
        ("chunks", True, True),
    ),
    "a total that no device reads": (
        ScanBlock.is_followed.fget,
        "index > 0 if self.reverse",
        "True if 1",
        ("two", True, True),
    ),
    "a prefix of padding": (
        prefixes.UntilPadding.__call__,
        "read_where(flags, leaves)",
        "leaves",
        ("two", False, False),
    ),
    "what comes before no step": (scan.total_before, "if block.has_empty", "if False", ("eight", False, False)),
    "a pass for devices that are not there": (
        scan.for_later_devices,
        "issuperset(axes)",
        "issubset('')",
        ("both", False, False),
    ),
    "prefixes of a pass for totals": (scan.scan_in_turn, "if alone", "if False", ("both", False, False)),
}


@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, marks=() if number < 1 else pytest.mark.thorough) for number, fault in enumerate(MUTANTS)],
)
def test_a_planted_fault_is_seen(fault: str) -> None:
    function, old, new, how = MUTANTS[fault]
    with damaged(function, old, new):
        run = planned(*how)
        with pytest.raises(AssertionError):
            compare_all(run, *how[1:])


@pytest.mark.thorough
def test_zeros_for_the_identity_are_seen() -> None:
    function = prefixes._beside_padding  # pyright: ignore[reportPrivateUsage]
    planted = damaged(function, "if not (block.reverse and exclusive)", "if True")
    with planted, pytest.raises(AssertionError):
        test_behind_nothing_but_padding_stands_the_identity("chunks")
