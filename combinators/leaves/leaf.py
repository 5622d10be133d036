"""What Map, Reduce and Scan have in common: an arrow that is one operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from combinators.arrows.arrow import Arrow
from combinators.arrows.faces import Face
from combinators.operations.operation import Operation
from combinators.recording.current import trace_of


class Leaf(Arrow[Any, Any]):
    """An arrow of one operation."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self.name = operation.name

    @property
    def arity(self) -> int:
        """The array operands of the signature."""
        return sum(operand.coordinate is None for operand in self.operation.signature.operands)

    def takes(self) -> Sequence[Face]:
        """The operands of the signature."""
        sizes = dict(self.operation.sizes)
        return [Face.of(o, sizes) for o in self.operation.signature.operands if o.coordinate is None]

    def gives(self) -> Sequence[Face] | None:
        """The results of the signature; open for states of several leaves."""
        if self.operation.monoid is not None:
            return None
        return [Face.of(result, dict(self.operation.sizes)) for result in self.operation.signature.results]

    def apply(self, *values: Any) -> Any:
        """Apply the operation."""
        return trace_of(values, self.name).apply(self.operation, values)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.operation})"
