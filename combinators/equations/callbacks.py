"""What equations that call back do while a program is run to see what it gives: see docs/design/kernels.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

SILENT = frozenset(("debug_callback", "debug_print"))
"""They compute nothing, and are left out."""

PURE = "pure_callback"
"""Says of itself that it may be called as often as one likes."""


def is_acting(equation: Any) -> bool:
    """Whether an equation itself does something beside computing, as a program that is run to be looked at may not."""
    return bool(equation.effects) and equation.primitive.name not in SILENT


def call_back(equation: Any, operands: Sequence[Any]) -> list[Any]:
    """The results of a pure callback, called with arrays of JAX as JAX does."""
    given = equation.params["callback"](*map(jnp.asarray, operands))
    pairs = zip(given, equation.outvars, strict=True)
    return [np.asarray(result, variable.aval.dtype).reshape(variable.aval.shape) for result, variable in pairs]
