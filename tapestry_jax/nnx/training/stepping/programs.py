"""The compiled programs of a trainer, one for each size of a batch: of its steps, and of evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
from flax import nnx

from tapestry_jax.nnx.training.program import LossProgram
from tapestry_jax.nnx.training.stepping.places import everywhere, places_of
from tapestry_jax.nnx.training.stepping.state import TrainState
from tapestry_jax.nnx.training.stepping.step import Stepper
from tapestry_jax.plan import Plan


class Programs:
    """Programs by the sizes of a batch; each is made when one of these sizes comes first.

    Args:
      stepper: what a step does.
      loss: the function that is trained on.
      graphdef: of the model.
      plan: of the loss.
      types: of the state.
      places: of the state.
    """

    def __init__(
        self,
        stepper: Stepper,
        loss: Callable[..., Any],
        graphdef: Any,
        plan: Plan,
        types: TrainState,
        places: TrainState,
    ) -> None:
        self._stepper, self._loss, self._graphdef, self._plan = stepper, loss, graphdef, plan
        self._places, self._step = places, types.step
        self._held = nnx.merge_state(types.params, types.rest)
        self._known, self._evaluated = dict[Any, Any](), None

    def plan_of(self, args: Sequence[Any]) -> Plan:
        """The plan for a batch of some sizes."""
        return self._stepper.run.plan(self._held, args, self._step)

    def find(self, args: Sequence[Any], *, trains: bool) -> tuple[Any, Any]:
        """The program for batches of these sizes, and where it wants them."""
        leaves, tree = jax.tree.flatten(args)
        key = trains, tree, tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)
        if key not in self._known:
            stepper = self._stepper if trains else self._evaluator()
            plan = stepper.run.plan(self._held, args, self._step)
            batch_at = places_of(list(args), list(plan.in_shardings[1 : 1 + len(args)]), plan.mesh)
            whole = everywhere(plan.mesh)
            program = jax.jit(
                stepper.train if trains else stepper.evaluate,
                in_shardings=(self._places, batch_at),
                out_shardings=(self._places, whole) if trains else whole,
                donate_argnums=0 if trains else (),
                compiler_options=plan.compiler_options or None,
            )
            self._known[key] = program, batch_at
        return self._known[key]

    def _evaluator(self) -> Stepper:
        """What computes metrics of the model as it is evaluated."""
        if self._evaluated is None:
            model = nnx.merge(self._graphdef, self._held)
            model.eval()
            self._evaluated = self._stepper
            if nnx.graphdef(model) != self._graphdef:
                program = LossProgram.of_evaluation(self._loss, model, self._plan, self._stepper.run.precision)
                self._evaluated = replace(self._stepper, run=program)
        return self._evaluated
