"""The inputs of an aggregator: how many a function takes, and whether what it is given fits."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from combinators.errors import GraphError, SignatureError, TapestryError, first_line, message
from combinators.index_space.signature import Signature
from combinators.index_space.usable import check_usable

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


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
    return sum(parameter.kind in _POSITIONAL and parameter.default is parameter.empty for parameter in parameters)


def most_inputs(function: Callable[..., Any]) -> int | None:
    """Count the inputs that a function can take.

    Args:
      function: its positional parameters are counted, unless it has an attribute `most_inputs` that says so.

    Returns:
      The number; None where it takes any number, or cannot be inspected.
    """
    if hasattr(function, "most_inputs"):
        return function.most_inputs  # pyright: ignore[reportFunctionMemberAccess]
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    return sum(parameter.kind in _POSITIONAL for parameter in parameters)


def check_inputs(where: str, lift: Callable[..., Any], lift_many: Callable[..., Any], xs: Sequence[Any]) -> None:
    """Refuse inputs of a wrong number, or whose leading axes differ.

    Args:
      where: what they are passed to, as the error names it.
      lift: cells of one element -> state.
      lift_many: inputs -> state.
      xs: arrays, or pytrees of arrays, each with a leading axis of elements.

    Raises:
      GraphError: when they do not fit.
    """
    leaves = jax.tree.leaves(xs)
    check_usable([f"input {number}" for number in range(len(leaves))], leaves, where)
    least, most = count_inputs(lift), most_inputs(lift_many)
    most = most_inputs(lift) if most is None else most
    problem = None
    if not xs or (least is not None and len(xs) < least) or (most is not None and len(xs) > most):
        low, high = max(1, least or 1), most
        wanted = f"{low} or more" if high is None else str(low) if high <= low else f"{low} to {high}"
        problem = f"expected  {wanted} input{'s' * (wanted != '1')}"
    elif len({np.shape(leaf)[:1] for leaf in jax.tree.leaves(xs)}) != 1 or _has_scalar(xs):
        problem = "expected  inputs with one leading axis, of the elements"
    if problem is not None:
        raise GraphError(
            message(
                f"{where}: the inputs do not fit.",
                problem,
                f"got       {described_inputs(xs)}",
                remedy="Pass one array for every input, with the elements along its leading axis.",
            )
        )


def check_operands(where: str, name: str, lift: Any, lift_many: Any, signature: Signature) -> None:
    """Refuse a signature with another number of operands than an aggregator takes inputs.

    Args:
      where: what takes the signature, as the error names it.
      name: of the aggregator.
      lift: cells of one element -> state.
      lift_many: inputs -> state.
      signature: its operands count, coordinates among them.

    Raises:
      SignatureError: when they are too few or too many.
    """
    least, most, count = count_inputs(lift), most_inputs(lift_many), len(signature.operands)
    most = most_inputs(lift) if most is None else most
    if (least is None or count >= least) and (most is None or count <= most):
        return
    low = max(1, least or 1)
    wanted = f"{low} or more" if most is None else str(low) if most <= low else f"{low} to {most}"
    given, takes = f"{count} operand{'s' * (count != 1)}", f"{wanted} input{'s' * (wanted != '1')}"
    raise SignatureError(
        message(
            f"{where} has {given}, and `{name}` takes {takes}",
            f"signature {signature}",
            remedy='Give what it takes besides values: weights, labels, or coordinates as in "v, @v -> ".'
            if count < low
            else "Leave the others out, or combine them in a kernel first.",
        )
    )


def check_cells(where: str, lift: Callable[..., Any], xs: Sequence[Any], error: Exception) -> None:
    """Say of inputs that could not be aggregated whether it was their cells that do not fit.

    Args:
      where: what they were passed to, as the error names it.
      lift: cells of one element -> state.
      xs: the inputs.
      error: what they led to.

    Raises:
      GraphError: when `lift` takes no such cells.
    """
    try:
        cells = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x)[1:], jax.numpy.result_type(x)), tuple(xs))
        jax.eval_shape(lift, *cells)
    except Exception:  # noqa: BLE001 - a user's lift may raise anything
        raise GraphError(
            message(
                f"{where}: the elements cannot be lifted.",
                f"got       {described_inputs(xs)}",
                first_line(error),
                remedy="Pass elements of the shape and dtype that `lift` takes, along the leading axis.",
            )
        ) from error


def described_inputs(xs: Sequence[Any]) -> str:
    """How many inputs there are, and their shapes."""
    shapes = ", ".join(str(np.shape(leaf)) for leaf in jax.tree.leaves(xs))
    return f"{len(xs)} input{'s' * (len(xs) != 1)}{', of shapes ' + shapes if xs else ''}"


def _has_scalar(xs: Sequence[Any]) -> bool:
    return any(not np.ndim(leaf) for leaf in jax.tree.leaves(xs))


def presented(where: str, present: Callable[[Any], Any], state: Any) -> Any:
    """What `present` makes of a state.

    Raises:
      GraphError: when it raises.
    """
    try:
        return present(state)
    except TapestryError:
        raise
    except Exception as error:  # it is the user's, and may raise anything
        details = (f"of a state {jax.tree.map(np.shape, state)!r:.200}", f"{type(error).__name__}: {error}"[:300])
        remedy = "Make it array code that takes one state, as `monoid.merge` gives it."
        raise GraphError(message(f"{where}: its `present` fails", *details, remedy=remedy)) from error
