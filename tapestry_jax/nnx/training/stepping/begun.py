"""What training begins with: the arrays of a run, each where the plan wants it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from combinators.errors import message
from tapestry_jax.nnx.training.errors import TrainingError
from tapestry_jax.nnx.training.stepping.places import everywhere, following, placed, places_of, sent
from tapestry_jax.nnx.training.stepping.state import TrainState
from tapestry_jax.plan import Plan


def places_begun(model: Any, optimizer: Any, plan: Plan, wrt: Any, *, ema: bool, scale: Any) -> tuple[Any, TrainState]:
    """Where everything lies before anything is computed.

    Args:
      model: with the first parameters.
      optimizer: of optax.
      plan: whose first argument is the state of the model.
      wrt: which of it is trained.
      ema: whether a mean of the parameters is kept.
      scale: the `LossScale` to begin with, or None.

    Returns:
      The types of all arrays, and their shardings, both as a `TrainState`.

    Raises:
      TrainingError: when nothing is trained, or the optimizer cannot do so.
    """
    mesh, held = plan.mesh, nnx.state(model)
    params, rest = nnx.split_state(held, wrt, ...)
    _check_trained(params, wrt)
    _check_optimizer(optimizer, params)
    params_at, rest_at = nnx.split_state(places_of(held, plan.in_shardings[0], mesh), wrt, ...)
    types = jax.eval_shape(
        lambda params, rest: TrainState(
            jnp.int32(0),
            params,
            rest,
            optimizer.init(params),
            _widened(params) if ema else None,
            scale,
            jnp.zeros(2, jnp.int32),
        ),
        params,
        rest,
    )
    whole = everywhere(mesh)
    optimizer_at = following(types.optimizer, params, params_at, mesh)
    scale_at = jax.tree.map(lambda _: whole, scale)
    return types, TrainState(whole, params_at, rest_at, optimizer_at, params_at if ema else None, scale_at, whole)


def begun(model: Any, optimizer: Any, places: TrainState, wrt: Any, scale: Any) -> TrainState:
    """The arrays that training begins with; they share no memory with those of the model."""
    params, rest = nnx.split_state(nnx.state(model), wrt, ...)
    params, rest = placed(params, places.params), placed(rest, places.rest)
    moments = jax.jit(optimizer.init, out_shardings=places.optimizer)(params)
    ema = None if places.ema is None else placed(_widened(params), places.ema)
    numbers = np.int32(0), scale, np.zeros(2, np.int32)
    step, scale, fault = jax.tree.map(sent, numbers, (places.step, places.scale, places.fault))
    return TrainState(step, params, rest, moments, ema, scale, fault)


def _widened(params: Any) -> Any:
    """In float32 at least: what a step adds to a mean is too small for shorter formats."""
    return jax.tree.map(lambda leaf: leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)), params)


def _check_optimizer(optimizer: Any, params: Any) -> None:
    """An update of these parameters can be computed of what a step knows: gradients, parameters and the loss."""

    def update(params: Any) -> Any:
        return updated(optimizer, params, optimizer.init(params), params, jnp.float32(0))

    try:
        jax.eval_shape(update, params)
    # Whatever an optimizer raises: transformations of others, in which anything may be wrong.
    except Exception as error:
        details = f"{type(error).__name__}: {error}"[:600].splitlines()
        remedy = (
            "Take one whose update needs the gradients of one loss: no line search, no second gradient; "
            "its labels and masks are of `nnx.state(model, wrt)`."
        )
        headline = "the optimizer of a trainer cannot update these parameters"
        raise TrainingError(message(headline, *details, remedy=remedy)) from error


def updated(optimizer: Any, gradients: Any, state: Any, params: Any, loss: Any) -> tuple[Any, Any]:
    """What an optimizer adds to the parameters, and its next state."""
    return optax.with_extra_args_support(optimizer).update(gradients, state, params, value=loss)


def _check_trained(params: Any, wrt: Any) -> None:
    leaves = jax.tree.leaves(params)
    kinds = sorted({str(leaf.dtype) for leaf in leaves if not jnp.issubdtype(leaf.dtype, jnp.inexact)})
    if leaves and not kinds:
        return
    told = f"wrt={getattr(wrt, '__name__', wrt)!s:.60}"
    details = f"got variables of {', '.join(kinds)}" if kinds else "got no variable"
    remedy = "Name the variables with floats that are trained, such as wrt=nnx.Param."
    raise TrainingError(message(f"{told} of a trainer names nothing that can be trained", details, remedy=remedy))
