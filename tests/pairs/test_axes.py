"""Axes that are split, backwards, strided, moved, overlapping: kernels do what their signature says, or are refused."""

from __future__ import annotations

from collections import Counter

import jax
import pytest

from tapestry_jax.lowering.on_device import kernels
from tests.pairs.axes import check

TRUE, FALSE = (4, 5, 16, 36, 48), (21, 23, 76, 82)
"""Of seed `q`: backwards, strided, composed, whole and folded axes; and kernels that are wrong on boxes alone."""


def faults(numbers: range | tuple[int, ...], seed: str) -> tuple[list[str], Counter[str]]:
    found = Counter[str]()
    with jax.enable_x64(True):
        for number in numbers:
            found += check(f"{seed}/{number}")
    return [kind for kind in found if kind.split()[0].isupper()], found


def test_axes_are_read_as_signatures_say() -> None:
    wrong, found = faults((*TRUE, *FALSE), "q")
    assert not wrong
    assert found["true"] >= 8 and found["refused by a plan"] >= 4


def test_kernels_that_nobody_holds_to_their_boxes_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "check_numbers", lambda *_, **__: None)
    wrong, _ = faults(FALSE[1:3], "q")
    assert len(wrong) >= 2 and all(each.startswith("ACCEPTED AND WRONG") for each in wrong)


@pytest.mark.thorough
@pytest.mark.parametrize("part", range(4))
def test_many_axes_are_read_as_signatures_say(part: int) -> None:
    wrong, _ = faults(range(40 * part, 40 * part + 40), "thorough")
    assert not wrong
