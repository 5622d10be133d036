"""What a loss returns: the number that is trained on, metrics beside it, and what is written to the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from combinators.errors import message
from combinators.frozen import dataclass
from tapestry_jax.nnx.training.errors import TrainingError


@dataclass(frozen=True)
class Results:
    """What a loss returned, read.

    Attributes:
      loss: a scalar.
      metrics: by name a scalar, the mean of a batch, or a pair of scalars, a total and the count that it is divided by.
      written: variables of the model by path, `norm.mean`, and what they hold after the call.
    """

    loss: Any
    metrics: Mapping[str, Any]
    written: Mapping[str, Any]


def read_results(result: Any, held: Any, trained: Any) -> Results:
    """Read what a loss returned: arrays, or their types.

    Args:
      result: a scalar; or a pair of it and a mapping from names to metrics. Behind either a graph gives what the model
        writes, which `tp.trace` and `tp.lift(..., state=True)` add.
      held: the state of the model.
      trained: the part of it that the optimizer changes.

    Raises:
      TrainingError: for anything else.
    """
    written: dict[str, Any] = {}
    if _tells_written(result):
        result, states = result
        for state in states.values():
            written |= {path: variable.get_value() for path, variable in by_path(state).items()}
    loss, told = _parted(result)
    variables, fixed = by_path(held), by_path(trained)
    for path, value in written.items():
        _check_written(path, value, variables[path], path in fixed)
    return Results(loss, {name: _metric(name, value) for name, value in told.items()}, written)


def by_path(state: Any) -> dict[str, Any]:
    """The variables of a state by their paths, as attributes are written: `decoder.0.kernel`."""
    return {".".join(map(str, path)): variable for path, variable in nnx.to_flat_state(state)}


def _tells_written(result: Any) -> bool:
    """Whether what was written comes behind the result, as graphs give it: states by the names of arguments."""
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Mapping) and result[1]):  # pyright: ignore[reportUnknownArgumentType]
        return False
    states: Any = result[1]
    return all(isinstance(state, nnx.State) for state in states.values())


def _parted(result: Any) -> tuple[Any, Any]:
    both: Any = result if isinstance(result, tuple | list) and len(result) == 2 else (result, {})  # pyright: ignore[reportUnknownArgumentType]
    loss, told = both
    if _is_scalar(loss) and jnp.issubdtype(loss.dtype, jnp.floating) and isinstance(told, Mapping):
        return loss, told
    raise TrainingError(
        message(
            "the loss returns what cannot be trained on",
            "expected a scalar of floats, or it and a dictionary of metrics: loss, {'accuracy': accuracy}",
            f"got {jax.tree.map(_described, result)}",
            remedy="Reduce the loss over all its dimensions, and return what else it tells in a dictionary.",
        )
    )


def _metric(name: Any, value: Any) -> Any:
    parts: Any = value if isinstance(value, tuple | list) else (value,)
    if len(parts) in (1, 2) and all(_is_scalar(part) for part in parts) and isinstance(name, str) and name not in _OURS:
        return tuple(parts) if len(parts) == 2 else value
    raise TrainingError(
        message(
            f"`{name}`, which the loss returns, is no metric",
            "a metric is a scalar, the mean of the batch, or a pair of scalars, a total and its count; "
            f"{' and '.join(_OURS)} are the trainer's own",
            f"got {jax.tree.map(_described, value)}",
            remedy="Reduce it to a scalar, and give it another name.",
        )
    )


_OURS = ("loss", "grad_norm", "skipped", "loss_scale")


def _check_written(path: str, value: Any, variable: Any, is_trained: bool) -> None:
    there = variable.get_value()
    expected, got = (f"{jnp.result_type(x)}{tuple(jnp.shape(x))}" for x in (there, value))
    if not is_trained and expected == got:
        return
    details = ("it is trained: the optimizer changes it",) if is_trained else (f"expected {expected}", f"got {got}")
    remedy = "Write to variables that are not trained, in their shapes and dtypes; or train others: wrt=."
    raise TrainingError(message(f"a model that is trained cannot write to `{path}`", *details, remedy=remedy))


def _is_scalar(value: Any) -> bool:
    return getattr(value, "shape", None) == () and hasattr(value, "dtype")


def _described(leaf: Any) -> str:
    return f"{leaf.dtype}{tuple(leaf.shape)}" if hasattr(leaf, "dtype") else f"{type(leaf).__name__}"
