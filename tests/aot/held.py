"""The collective contract as the production compilers keep it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from tapestry_jax.aot.seen import Seen

Key = tuple[str, tuple[str, ...]]


def assert_held(seen: Seen, plan: str = "") -> None:
    """Each kind over each set of axes sends what is predicted, to the byte; what is a bound sends no more than that.

    The TPU compiler takes an all-reduce of the same bytes for some reduce-scatters and gathers, and the prediction says
    for which; where it says "perhaps", the two kinds count together, and each stays within what is left to it.
    """
    predicted, found = list(seen.predicted), list(seen.collectives)
    must = [each for each in predicted if not each.bound]
    for together in (False, True) if any(each.perhaps for each in predicted) else (False,):
        least, most, sent = (_total(each, together) for each in (must, predicted, found))
        free = Counter[Key]()
        for each in predicted if not together else ():
            if each.perhaps:
                for kind in (each.kind, each.perhaps):
                    free[kind, tuple(sorted(each.axes))] += each.bytes * each.times
        for key in {*sent, *most}:
            low, high = least.get(key, 0) - free[key], most.get(key, 0) + free[key]
            assert low <= sent.get(key, 0) <= high, f"{plan} {key}: {low} to {high}, {sent.get(key, 0)}\n{seen}"


def _total(collectives: Iterable[Any], together: bool) -> dict[Key, int]:
    total: Counter[Key] = Counter()
    for each in collectives:
        whole = together and each.kind in ("reduce-scatter", "all-gather", "all-reduce")
        total["all-reduce" if whole else each.kind, tuple(sorted(each.axes))] += each.bytes * each.times
    return {key: size for key, size in total.items() if size}
