"""Parts of programs: what can be applied to the values of a program, whatever operators it may have."""

from __future__ import annotations

import abc
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from combinators.arrows.faces import Face
from combinators.kernels.immutable import Immutable, copied_with_parts

if TYPE_CHECKING:
    from combinators.graphs.graph import Graph


class Part(Immutable, abc.ABC):
    """Something to apply to values; an arrow is a part that composes by operators."""

    name: str = "arrow"

    @abc.abstractmethod
    def apply(self, *values: Any) -> Any:
        """Add this part to the program that `values` belong to."""

    def apply_top(self, *values: Any) -> Any:
        """The same where this part is the whole program."""
        return self.apply(*values)

    @functools.cached_property
    def graphs(self) -> dict[Any, tuple[Graph, tuple[int, ...]]]:
        """The graphs that calls on arrays were traced to, by the types of the arrays, and which holders they write."""
        return {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # What holds arrays, or modules, is copied with them.
        return copied_with_parts(self, memo) if self.holders() else self

    @property
    def arity(self) -> int | None:
        """How many operands it takes; None where that is open."""
        return None

    def takes(self) -> Sequence[Face] | None:
        """What is known of the operands before they come; None where nothing is."""
        return None

    def gives(self) -> Sequence[Face] | None:
        """What is known of the results before they come; None where nothing is."""
        return None

    def parts(self) -> Sequence[Part]:
        """The arrows that this one is made of."""
        return ()

    def holders(self) -> list[Holder]:
        """The parts that hold arrays of their own (bound operands, parameters), each once, in order."""
        seen: dict[int, Part] = {}
        waiting: list[Part] = [self]
        while waiting:
            arrow = waiting.pop()
            if id(arrow) not in seen:
                seen[id(arrow)] = arrow
                waiting.extend(reversed(arrow.parts()))
        return [arrow for arrow in seen.values() if isinstance(arrow, Holder)]


class Holder(Part):
    """A part with arrays of its own, which become inputs of any graph that it is traced into."""

    @abc.abstractmethod
    def held(self) -> Any:
        """The pytree of arrays."""

    def held_types(self) -> Any:
        """The same pytree with what tells types (arrays, or `TensorType`s that name the axes)."""
        return self.held()

    def written(self, before: Any, after: Any, result: Any) -> Any:
        """What a program wrote: of the values that stood for its arrays, and that do now, a pytree of the new ones.

        Args:
          before: the values that stood for the arrays.
          after: those that do now.
          result: what the program gives beside them.
        """
        raise NotImplementedError(f"{type(self).__name__} holds what no program writes")

    def store(self, written: Any) -> None:
        """Keep the arrays that a call wrote."""
        raise NotImplementedError(f"{type(self).__name__} holds what no program writes")

    @property
    def held_name(self) -> str:
        """What the inputs of a graph are called."""
        return self.name
