"""Kernels that are said to do what another one does, asked of them: both are run on the same few numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from combinators.claims.running import Run, told
from combinators.claims.slopes import pullback
from combinators.declared.compared import differ, tolerances
from combinators.declared.drawn import are_whole, drawn, moved
from combinators.index_space.signature import Signature

_ROUNDS = 2
# By chance alone, as at a kink, one draw may differ.
_DIFFERING = 2


def gives_otherwise(signature: Signature, sizes: Mapping[str, int], own: Any, other: Any) -> bool:
    """Whether two kernels are known to give other numbers, or to pull back others.

    Args:
      signature: of both.
      sizes: of the index box.
      own: closed jaxpr of one kernel, from blocks to what is compared.
      other: of the other one.
    """

    def asked(runs: Sequence[Run]) -> Iterator[bool]:
        return (_differ(runs, arrays, allowed) for arrays in drawn(signature, own, sizes, _ROUNDS))

    allowed = tolerances((own, other))
    return told([own, other], asked, _DIFFERING) or told([pullback(own), pullback(other)], asked, _DIFFERING)


def _differ(runs: Sequence[Run], arrays: Sequence[Any], allowed: Mapping[int, float]) -> bool:
    own, other = runs

    def again(way: int) -> list[Any]:
        return other([moved(array, way) for array in arrays])

    near = own(list(map(moved, arrays)))
    return differ(own(arrays), other(arrays), near, again, are_whole(arrays), allowed, finite=True)
