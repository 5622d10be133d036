"""The collective contract as the production compilers keep it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from tapestry_jax.aot.seen import Seen

Key = tuple[str, tuple[str, ...]]
# Below 128 elements of four bytes for each of eight devices the TPU compiler gathers a vector by an all-reduce.
VECTOR = 128 * 4 * 8


def assert_held(seen: Seen, plan: str = "") -> None:
    """Each kind over each set of axes sends what is predicted, to the byte; what is a bound sends no more than that.

    The TPU compiler takes an all-reduce of the same bytes for reduce-scatters of vectors and of few rows, and for
    gathers of short vectors: there, reductions and gathers count together, and long gathers stay gathers.
    """
    tpu = "TPU" in seen.machine
    predicted, found = list(seen.predicted), list(seen.collectives)
    must = [each for each in predicted if not each.bound]
    least, most, sent = (_total(each, tpu) for each in (must, predicted, found))
    for key in {*sent, *most}:
        low, high = least.get(key, 0), most.get(key, 0)
        assert low <= sent.get(key, 0) <= high, f"{plan} {key}: {low} to {high}, {sent.get(key, 0)} compiled\n{seen}"
    if tpu:
        long = _total((each for each in must if each.kind == "all-gather" and each.bytes >= VECTOR), False)
        gathers = _total((each for each in found if each.kind == "all-gather"), False)
        assert all(gathers.get(key, 0) >= size for key, size in long.items()), f"{plan}\n{seen}"


def _total(collectives: Iterable[Any], together: bool) -> dict[Key, int]:
    total: Counter[Key] = Counter()
    for each in collectives:
        whole = together and each.kind in ("reduce-scatter", "all-gather", "all-reduce")
        total["all-reduce" if whole else each.kind, tuple(sorted(each.axes))] += each.bytes * each.times
    return {key: size for key, size in total.items() if size}
