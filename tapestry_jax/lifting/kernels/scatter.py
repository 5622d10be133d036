"""Scattering on blocks: its parameters hold no sizes, but a program, which is that of its name."""

from __future__ import annotations

from typing import Any

from jax import lax

from combinators.frozen import dataclass

SCATTERS = {
    "scatter": lax.scatter,
    "scatter-add": lax.scatter_add,
    "scatter-sub": getattr(lax, "scatter_sub", None),
    "scatter-mul": lax.scatter_mul,
    "scatter-min": lax.scatter_min,
    "scatter-max": lax.scatter_max,
}
"""Primitive to function."""


@dataclass(frozen=True)
class Scatter:
    """One of `SCATTERS`.

    Attributes:
      primitive: its name.
      numbers: which axis is which.
      mode: what numbers outside do.
      flags: whether the numbers are sorted, and whether each is there once.
    """

    primitive: str
    numbers: Any
    mode: Any
    flags: tuple[bool, bool]

    def __call__(self, operand: Any, indices: Any, updates: Any) -> Any:
        """The operand with the updates in it."""
        is_sorted, is_unique = self.flags
        function: Any = SCATTERS[self.primitive]
        return function(
            operand,
            indices,
            updates,
            self.numbers,
            indices_are_sorted=is_sorted,
            unique_indices=is_unique,
            mode=self.mode,
        )
