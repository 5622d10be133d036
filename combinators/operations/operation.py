"""The one kind of leaf: a block kernel over an index space, with a monoid for what the result does not carry."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import MISSING, fields
from functools import cached_property, lru_cache
from typing import Any

from combinators.errors import KernelError
from combinators.frozen import dataclass
from combinators.index_space.signature import Signature
from combinators.kernels.immutable import Immutable
from combinators.kernels.kernel import fingerprint
from combinators.kernels.settled import changeable, may_change, settled
from combinators.merging.monoid import Monoid
from combinators.operations.rules import check_operation

TRACED = "as it was traced last"
"""In `Operation.known`: what it computed then, where that can change."""


@dataclass(frozen=True, eq=False)
class Operation(Immutable):
    """What a leaf computes, apart from where it is applied.

    Two operations are equal where their names and fingerprints are, and where what they read and others can change is
    the same: Python's own equality would take `x * 1` for `x * 1.0`, and `x / 0.0` for `x / -0.0`. The kernel reads
    variables of enclosing functions as they were when the operation was made.

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
      dense: kernels that stand in where their conditions hold, see `combinators.operations.dense.Dense`; the first that
        may run does. One without conditions returns the result at once, where no fold dimension is cut.
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

    def __post_init__(self) -> None:
        for name in ("kernel", "present", "dense"):
            given = getattr(self, name)
            if (kept := settled(given)) is not given:
                object.__setattr__(self, name, kept)
        check_operation(self, f"`{self.name}`")

    @property
    def kind(self) -> str:
        """`map`, `reduce` or `scan`."""
        if self.monoid is None:
            return "map"
        return "scan" if self.over is not None else "reduce"

    @cached_property
    def fingerprint(self) -> str:
        """The structural text of the operation without its name, which is a label."""
        parts = [
            f"{name}={known if value is default else fingerprint(value)}"
            for name, default, known in _described()
            for value in (getattr(self, name),)
        ]
        return f"{self.signature} " + " ".join(parts)

    @cached_property
    def _identity(self) -> tuple[Any, ...]:
        try:
            read = changeable(self.kernel, self.present, self.dense, self.monoid)
            return (self.name, self.fingerprint, read)
        except KernelError:
            # A kernel without a structure that can be told is equal to itself alone.
            return (self.name, str(self.signature), *(id(getattr(self, item.name)) for item in fields(self)))

    @cached_property
    def may_change(self) -> bool:
        """Whether what it computes can come to be something else: a kernel may read a list, an object, a global."""
        return may_change(self.kernel, self.present, self.dense, self.monoid)

    @cached_property
    def known(self) -> dict[Hashable, Any]:
        """What was found out about it (`combinators.graphs.unchanged`)."""
        return {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Operation) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __str__(self) -> str:
        return f"{self.name}: {self.signature}"


@lru_cache(maxsize=1)
def _described() -> tuple[tuple[str, Any, str], ...]:
    """The fields that the fingerprint tells, with their defaults, which most have, and the texts of these."""
    told = [item for item in fields(Operation) if item.name not in ("name", "signature")]
    return tuple(
        (item.name, item.default, "" if item.default is MISSING else fingerprint(item.default)) for item in told
    )
