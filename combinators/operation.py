"""The one kind of leaf: a block kernel over an index space, with a monoid for what the result does not carry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from combinators.monoid import Monoid
from combinators.signature import Signature


@dataclass(frozen=True)
class Operation:
    """What a leaf computes, apart from where it is applied.

    Attributes:
      signature: which box of each tensor a box of the index space touches.
      kernel: operand blocks to result blocks (`Map`), or to a state block (`Reduce`, `Scan`).
      monoid: merges the states of the folded dimensions, or of the steps of a scan; None for a map.
      carrier: the axes of the state, leaf by leaf, where they differ from the result's.
      present: state of one cell to result of one cell; None is the identity.
      over: the scanned dimension; None where nothing is scanned.
      reverse: a scan from the end.
      exclusive: a scan whose result at `t` leaves out `t`.
      sizes: sizes that the operands' shapes do not tell.
      boundary: what is read outside a tensor: one mode, or one per window axis in order.
      pad: for each operand a value that is neutral in the fold, or None; None where not declared.
      dense: kernels that return the result at once, for where no fold dimension is cut; the first is used.
      name: how paths and errors call it.
    """

    signature: Signature
    kernel: Callable[..., Any]
    monoid: Monoid | None = None
    carrier: tuple[tuple[str, ...], ...] | None = None
    present: Callable[..., Any] | None = None
    over: str | None = None
    reverse: bool = False
    exclusive: bool = False
    sizes: tuple[tuple[str, int], ...] = ()
    boundary: str | tuple[str, ...] = "valid"
    pad: tuple[float | int | None, ...] | None = None
    dense: tuple[Callable[..., Any], ...] = ()
    name: str = "operation"

    @property
    def kind(self) -> str:
        """`map`, `reduce` or `scan`."""
        if self.monoid is None:
            return "map"
        return "scan" if self.over is not None else "reduce"

    def __str__(self) -> str:
        return f"{self.name}: {self.signature}"
