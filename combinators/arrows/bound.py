"""Arrows with operands fixed: the arrays become inputs of the graph, never constants inside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from combinators.arrows.combined import Combined, Steps
from combinators.arrows.compose import one_or_all
from combinators.arrows.faces import Face
from combinators.arrows.part import Holder, Part
from combinators.errors import CompositionError, message
from combinators.recording.current import trace_of
from combinators.recording.value import as_value


class Bound(Combined, Holder):
    """`f.bind(w)`: the last operands of `f` fixed to arrays (or, before they exist, to types)."""

    def __init__(self, arrow: Part, arrays: tuple[Any, ...]) -> None:
        if arrow.arity is not None and len(arrays) > arrow.arity:
            raise CompositionError(
                message(
                    f"cannot bind {len(arrays)} operands of `{arrow.name}`, which takes {arrow.arity}",
                    remedy="Bind at most as many as it takes; the last ones are bound.",
                )
            )
        self._arrow, self._arrays = arrow, arrays
        self.name = arrow.name
        self._arity = None if arrow.arity is None else arrow.arity - len(arrays)
        # Asked now: bound arrows inside bound arrows would ask one another.
        faces = arrow.takes()
        self._takes = None if faces is None else list(faces)[: len(faces) - len(arrays)]
        self._gives = arrow.gives()

    @property
    def arity(self) -> int | None:
        """What is left to pass."""
        return self._arity

    def takes(self) -> Sequence[Face] | None:
        """The operands that are left."""
        return self._takes

    def gives(self) -> Sequence[Face] | None:
        """What the arrow gives."""
        return self._gives

    def parts(self) -> tuple[Part, ...]:
        """The arrow."""
        return (self._arrow,)

    def held(self) -> Any:
        """The bound arrays."""
        return one_or_all(self._arrays)

    @property
    def held_name(self) -> str:
        """`bound`."""
        return "bound"

    def steps(self, *values: Any) -> Steps:
        """The arrow, with the bound operands behind `values`."""
        held = trace_of(values, self.name).held(self)
        held = held if len(self._arrays) != 1 else (held,)
        return (yield self._arrow, (*values, *map(as_value, held)))
