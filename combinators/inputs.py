"""How many inputs a function of one element takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def count_inputs(function: Callable[..., Any]) -> int | None:
    """Count the inputs that a function needs.

    Args:
      function: its parameters without a default are counted, unless it has an attribute `inputs` that says so.

    Returns:
      The number; None where it takes any number, or cannot be inspected.
    """
    if hasattr(function, "inputs"):
        return function.inputs  # pyright: ignore[reportFunctionMemberAccess]
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in positional and parameter.default is parameter.empty for parameter in parameters)
