"""One step of training as one program: the loss under its plan, its gradients, and what the optimizer makes of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from combinators.frozen import dataclass
from tapestry_jax.nnx.training.program import LossProgram
from tapestry_jax.nnx.training.results import Results, by_path, read_results
from tapestry_jax.nnx.training.stepping.begun import updated
from tapestry_jax.nnx.training.stepping.finite import first_fault
from tapestry_jax.nnx.training.stepping.scaling import LEAST
from tapestry_jax.nnx.training.stepping.state import TrainState

Nan = Literal["stop", "skip"] | None


@dataclass(frozen=True, eq=False)
class Stepper:
    """What a step does, as a function of arrays.

    Attributes:
      run: the planned loss, of the model's state, the arguments of a batch, and the number of the step.
      optimizer: of optax.
      ema: how much the exponential mean keeps; None where there is none.
      nan: what is done where a number is none; with None nothing is told, and only a loss that is scaled leaves such
        steps out, since that is how it finds its scale.
    """

    run: LossProgram
    optimizer: Any
    ema: float | None
    nan: Nan

    def results(self, params: Any, rest: Any, batch: Sequence[Any], step: Any) -> Results:
        """The loss of a batch, and what it tells."""
        held = nnx.merge_state(params, rest)
        return read_results(self.run(held, batch, step), held, params)

    def evaluate(self, state: TrainState, batch: Sequence[Any]) -> Mapping[str, Any]:
        """The metrics of a batch."""
        found = self.results(state.params, state.rest, batch, state.step)
        return {"loss": found.loss, **found.metrics}

    def train(self, state: TrainState, batch: Sequence[Any]) -> tuple[TrainState, Mapping[str, Any]]:
        """The state after a step, and the metrics of it."""

        def scaled(params: Any) -> Any:
            found = self.results(params, state.rest, batch, state.step)
            loss = found.loss.astype(jnp.float32) if found.loss.dtype.itemsize < 4 else found.loss
            factor = 1 if state.scale is None else state.scale.value.astype(loss.dtype)
            return loss * factor, (loss, dict(found.metrics), dict(found.written))  # JAX knows no classes of ours

        gradients, told = jax.grad(scaled, has_aux=True)(state.params)
        found = Results(*told)
        if state.scale is not None:
            gradients = state.scale.unscaled(gradients)
        updates, optimizer = updated(self.optimizer, gradients, state.optimizer, state.params, found.loss)
        params = optax.apply_updates(state.params, updates)
        ema = state.ema
        if self.ema is not None:
            moved = 1 - self.ema
            ema = jax.tree.map(lambda old, new: old + moved * (new - old), ema, params)
        after = dataclasses.replace(
            state, params=params, rest=_written(state.rest, found.written), optimizer=optimizer, ema=ema
        )
        metrics: dict[str, Any] = {"loss": found.loss, **found.metrics, "grad_norm": optax.tree.norm(gradients)}
        return self._guarded(state, after, metrics, (found.loss, gradients, updates))

    def _guarded(self, before: TrainState, after: TrainState, metrics: Any, told: Any) -> Any:
        """The state after the step, but for steps that are left out."""
        step = before.step + 1
        if self.nan is None and before.scale is None:
            return dataclasses.replace(after, step=step), metrics
        fault = first_fault(*told)
        stays, scale, stops = (fault == 0).all(), before.scale, fault
        if scale is not None:
            # Gradients that are too large for their dtype are expected, and end where the scale cannot be smaller.
            scale = scale.after(stays)
            stops = jnp.where((before.scale.value > LEAST) & (fault[0] == 0), jnp.zeros_like(fault), fault)
            metrics = {**metrics, "loss_scale": before.scale.value}
        if self.nan == "stop":
            had = before.fault.any()
            stays = stays & ~had
            held = jnp.where(had, before.fault, stops)
            step = jnp.where(held.any(), before.step, step)
        else:
            held = before.fault
        chosen = jax.tree.map(lambda new, old: jnp.where(stays, new, old), after, before)
        metrics = {**metrics, "skipped": ~stays, **({} if self.nan is None else {FAULT: stops})}
        return dataclasses.replace(chosen, step=step, scale=scale, fault=held), metrics


FAULT = "_fault"
"""Under which name the metrics of a step hold what `first_fault` found, for the trainer alone."""


def _written(rest: Any, written: Mapping[str, Any]) -> Any:
    """The other variables of a model, some of which hold something else."""
    flat = zip(nnx.to_flat_state(rest), by_path(rest), strict=True)
    return nnx.from_flat_state(
        [(at, variable.replace(written[path]) if path in written else variable) for (at, variable), path in flat]
    )
