"""Kernels that are said to do what another one does, asked of them: both are run on the same few numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from combinators.claims.slopes import pullback
from combinators.declared.boxed import runner
from combinators.declared.compared import alike, numbers
from combinators.declared.drawn import drawn, is_key, moved
from combinators.declared.runnable import apart, ways
from combinators.equations.effort import Effort
from combinators.index_space.signature import Signature

_ROUNDS = 2
# By chance alone, as at a kink, one draw may differ.
_DIFFERING = 2
# What all runs of one question in NumPy may take, in small equations.
_EFFORT = 1 << 18


def gives_otherwise(signature: Signature, sizes: Mapping[str, int], own: Any, other: Any) -> bool:
    """Whether two kernels are known to give other numbers, or to pull back others.

    Args:
      signature: of both.
      sizes: of the index box.
      own: closed jaxpr of one kernel, from blocks to what is compared.
      other: of the other one.
    """
    return _differ(signature, sizes, own, own, other) or _differ(signature, sizes, own, pullback(own), pullback(other))


def _differ(signature: Signature, sizes: Mapping[str, int], asked: Any, own: Any, other: Any) -> bool:
    if own is None or other is None:
        return False
    for way in ways([own, other]):
        try:
            with apart(), np.errstate(all="ignore"):
                effort = Effort(_EFFORT)
                runs = runner(own, way, effort), runner(other, way, effort)
                found = (True for arrays in drawn(signature, asked, sizes, _ROUNDS) if _differ_on(runs, arrays))
                return len(list(itertools.islice(found, _DIFFERING))) == _DIFFERING
        except Exception:  # noqa: BLE001 - a kernel for another machine, or one that raises: nothing is known
            continue
    return False


def _differ_on(runs: Sequence[Callable[[Sequence[Any]], list[Any]]], arrays: Sequence[Any]) -> bool:
    own, other = runs
    exact = all(array.dtype.kind in "biu" for array in arrays if not is_key(array.dtype))
    leaves = zip(own(arrays), other(arrays), own(list(map(moved, arrays))), strict=True)
    return any(not alike(numbers(one), numbers(two), numbers(near), exact) for one, two, near in leaves)
