"""Equations of a jaxpr as functions, and as kernels where nothing else is known of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax

from combinators.frozen import dataclass
from combinators.kernels.jaxprs import as_function, is_literal, program_of
from tapestry_jax.lifting.kernels.cells import as_computed


def function_of(equation: Any, within: Any) -> Callable[..., list[Any]]:
    """The function of one equation: all its operands, numbers too, to the list of its results.

    Args:
      equation: of any primitive.
      within: a jaxpr, closed or not, that says where programs come from.
    """
    variables = list(dict.fromkeys(atom for atom in equation.invars if not is_literal(atom)))
    first = [equation.invars.index(variable) for variable in variables]
    function = as_function(program_of(equation, variables, getattr(within, "jaxpr", within)))
    return lambda *operands: function(*(operands[at] for at in first))


class Function:
    """A function that was looked at once, told from others by a text."""

    def __init__(self, call: Callable[..., Any], text: str) -> None:
        self.call, self.text = call, text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Function) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _refused, (self.text,)


def _refused(text: str) -> Any:
    raise TypeError(f"a lifted function is stored nowhere: {text}")


@dataclass(frozen=True)
class Opaque:
    """What no rule knows, on whole operands.

    Attributes:
      primitive: its name.
      function: what it computes.
      source: where the user wrote it.
    """

    primitive: str
    function: Function
    source: str

    def __call__(self, *operands: Any) -> Any:
        """Its result, or the tuple of its results."""
        # Programs inside were traced outside of the mesh that they are run in, and so were the types of their results.
        out = [as_computed(leaf) for leaf in self.function.call(*operands)]
        return out[0] if len(out) == 1 else tuple(out)

    @property
    def opaque(self) -> tuple[str, str]:
        """What `Graph.opaque` shows: the primitive and where it was written."""
        return self.primitive, self.source


def text_of(equation: Any, operands: Sequence[Any]) -> str:
    """A text that is equal for equations that compute the same, as far as texts of programs tell."""
    shown = f"{equation.primitive.name} {sorted(equation.params.items(), key=lambda item: item[0])} {operands!r}"
    # Addresses are of this process alone; what they stood for is told by the object, which lives as long as its graph.
    if re.search(r"0x[0-9a-f]{6,}", shown) or _holds_functions(equation):
        shown += f" {id(equation)}"
    return hashlib.sha256(shown.encode()).hexdigest()


def _holds_functions(equation: Any) -> bool:
    return any(
        callable(value) or (hasattr(value, "consts") and any(jax.numpy.ndim(c) for c in value.consts))
        for value in equation.params.values()
    )
