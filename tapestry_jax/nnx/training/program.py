"""The loss of a plan as a program for batches of all sizes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx

from combinators.arrows.program import Program
from combinators.arrows.tracing import trace
from combinators.errors import message, spelt
from combinators.frozen import dataclass
from combinators.graphs.graph import Graph
from combinators.graphs.walk import loops
from combinators.index_space.tensor_type import type_of
from tapestry_jax.lifting.lift import lift
from tapestry_jax.lowering.devices import require_running
from tapestry_jax.nnx.modules.module import Module
from tapestry_jax.nnx.training.errors import TrainingError
from tapestry_jax.nnx.training.precision import Precision
from tapestry_jax.nnx.training.results import by_path
from tapestry_jax.plan import Plan, asked_of, make_plan
from tapestry_jax.resizing.fewer import replan_in_fewer_chunks
from tapestry_jax.resizing.planned import Planned

STEP = "step"
"""The parameter of a loss that is given the number of the step."""


@dataclass(frozen=True)
class LossProgram:
    """A loss, and what it takes.

    Attributes:
      run: the planned loss.
      names: of the arguments of a batch.
      takes_step: whether the number of the step comes behind them.
      precision: in which dtypes it computes.
    """

    run: Planned
    names: tuple[str, ...]
    takes_step: bool
    precision: Precision

    @staticmethod
    def of(loss: Callable[..., Any], model: Any, plan: Plan, precision: Precision) -> LossProgram:
        """What a plan of `tp.trace(loss, model, ...)`, or of `tp.lift(loss, model, ...)`, is for.

        Args:
          loss: the function.
          model: the module.
          plan: of the loss as it is. Where it computes in other dtypes it is another program: planned by what the plan
            was asked for.
          precision: in which dtypes the program computes.

        Raises:
          TrainingError: when it is for another model, or its first argument is no model.
        """
        types: Any = argument_types(plan.graph)
        _check_model(model, types, plan.graph)
        names = _names(loss, len(types))
        takes_step = len(types) > 1 and names[-1] == STEP and types[-1] == jax.tree.map(_step_like, types[-1])
        told = names[1 : len(names) - takes_step]
        precision.check(types[0], told)
        batch = [*precision.batch(told, types[1 : 1 + len(told)]), *types[1 + len(told) :]]
        if precision.rules:
            model = _computing(model, precision)
            plan = make_plan(_graph(loss, model, batch, plan.graph), plan.mesh, asked_of(plan))
        program = Program(loss, None) if isinstance(model, Module) else loss
        lifted = _as_lifted(loss, model, batch, plan.graph)
        run = Planned(plan, program, (model, *batch), lifted, replan_in_fewer_chunks)
        return LossProgram(run, told, takes_step, precision)

    def __call__(self, held: Any, batch: Sequence[Any], step: Any) -> Any:
        """What the loss returns, computed in the dtypes that were asked for."""
        batch = self.precision.batch(self.names, batch)
        return self.run(self.precision.held(held), *batch, *([step] if self.takes_step else []))

    @staticmethod
    def of_evaluation(loss: Callable[..., Any], model: Any, plan: Plan, precision: Precision) -> LossProgram:
        """The loss of a model as it is evaluated, planned by what the plan of its training was asked for.

        Args:
          loss: the function.
          model: after `model.eval()`.
          plan: of the loss as it is trained.
          precision: in which dtypes the program computes.
        """
        types: Any = argument_types(plan.graph)
        graph = _graph(loss, model, types[1:], plan.graph)
        return LossProgram.of(loss, model, make_plan(graph, plan.mesh, asked_of(plan)), precision)

    def arguments(self, batch: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """The arrays of a batch, in the order in which the loss takes them.

        Raises:
          TrainingError: when there are others than it takes.
        """
        wrong = [f"no argument is called `{name}`" for name in named if name not in self.names]
        wrong += [f"`{name}` is given twice" for name in self.names[: len(batch)] if name in named]
        given = {**dict(zip(self.names, batch, strict=False)), **named}
        wrong += [f"`{name}` is missing" for name in self.names if name not in given]
        wrong += [f"{len(batch)} were given" for _ in range(len(batch) > len(self.names))]
        if wrong:
            headline = f"a batch has {len(self.names)} arguments: {', '.join(self.names)}"
            remedy = "Pass what the loss takes behind the model" + "; the step comes by itself." * self.takes_step
            raise TrainingError(message(headline, *wrong, remedy=remedy.rstrip(".") + "."))
        return [jax.tree.map(_as_array, given[name]) for name in self.names]

    def read(self, batch: Any) -> list[Any]:
        """The arrays of a batch: a tuple or list in the order of the loss, a dictionary by name, or the only one.

        Raises:
          TrainingError: as `arguments` does.
        """
        if isinstance(batch, Mapping):
            return self.arguments((), batch)  # pyright: ignore[reportUnknownArgumentType]
        return self.arguments(batch if isinstance(batch, tuple | list) else (batch,), {})  # pyright: ignore[reportUnknownArgumentType]

    def plan(self, held: Any, batch: Sequence[Any], step: Any) -> Plan:
        """The plan for a batch of some sizes."""
        batch = self.precision.batch(self.names, batch)
        return self.run.plan(self.precision.held(held), *batch, *([step] if self.takes_step else []))


def argument_types(graph: Graph) -> tuple[Any, ...]:
    """The types of a program's arguments, in their structures."""
    return jax.tree.unflatten(graph.in_tree, [node.results[0] for node in graph.inputs])


def _as_array(leaf: Any) -> Any:
    return leaf if isinstance(leaf, jax.Array | jax.ShapeDtypeStruct) else np.asarray(leaf)


def _graph(loss: Callable[..., Any], model: Any, batch: Sequence[Any], like: Graph) -> Graph:
    """The graph of a loss of another model, made as one that is there."""
    if isinstance(model, Module):
        return trace(Program(loss, None), model, *batch)
    return lift(loss, model, *batch, **_as_lifted(loss, model, batch, like))


def _as_lifted(loss: Callable[..., Any], model: Any, batch: Sequence[Any], graph: Graph) -> dict[str, Any]:
    """What `tp.lift` was told of a loss: with maps, if it has fewer loops than without."""
    axes = {node.name: " ".join(name or "_" for name in node.results[0].names) for node in graph.inputs}
    told: dict[str, Any] = {"names": axes, "state": _writes(graph)}
    kept = _handing_nothing_on(graph)
    if not kept or isinstance(model, Module):
        return {**told, "maps": True}
    return {**told, "maps": _handing_nothing_on(lift(loss, model, *batch, **told)) > kept}


def _handing_nothing_on(graph: Graph) -> int:
    """How many loops hand nothing on from turn to turn."""
    return sum(not loop.carries for _, loop in loops(graph))


def _computing(model: Any, precision: Precision) -> Any:
    """The module with types for its parameters, in which a program computes."""
    graphdef, held = nnx.split(model)
    return nnx.merge(graphdef, precision.held(jax.tree.map(_as_type, held)))


def _as_type(leaf: Any) -> Any:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)


def check_plan(plan: Any) -> None:
    """A plan, on devices that are here.

    Raises:
      TrainingError: when it is none.
      MeshError: when its mesh has no devices.
    """
    if not isinstance(plan, Plan):
        details = (f"got {type(plan).__name__}: {spelt(plan)}",)
        remedy = "Plan the loss: tp.plan(tp.trace(loss, model, *types), mesh, {...})."
        raise TrainingError(message("a trainer was given no plan", *details, remedy=remedy))
    require_running(plan.mesh)


def _step_like(leaf: Any) -> Any:
    return leaf if leaf.shape == () and leaf.dtype == jax.numpy.int32 else None


def _writes(graph: Graph) -> bool:
    result = jax.tree.unflatten(graph.out_tree, [ref for _, ref in graph.outputs])
    leaves = jax.tree.leaves(result, is_leaf=lambda part: isinstance(part, nnx.State))
    return any(isinstance(leaf, nnx.State) for leaf in leaves)


def _names(loss: Callable[..., Any], count: int) -> tuple[str, ...]:
    function: Any = getattr(loss, "function", loss)
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # of what is written in C nobody knows the names
        parameters = ()
    found = [each.name for each in parameters if each.kind in kinds]
    return (*found[:count], *(f"argument {at}" for at in range(len(found), count)))


def _check_model(model: Any, types: Sequence[Any], graph: Graph) -> None:
    first = types[0] if types else None
    expected = by_path(first) if isinstance(first, nnx.State) else {}
    got = by_path(nnx.state(model)) if isinstance(model, nnx.Module) else {}
    there = {path: variable.get_value() for path, variable in expected.items()}
    here = {path: type_of(variable.get_value(), path) for path, variable in got.items()}
    wrong = [f"`{path}` is not in the model" for path in there if path not in here]
    wrong += [f"`{path}` is not in the plan" for path in here if path not in there]
    wrong += [
        f"`{path}` is {_shown(there[path])} in the plan, {_shown(here[path])} in the model"
        for path in there
        if path in here and (there[path].shape, there[path].dtype) != (here[path].shape, here[path].dtype)
    ]
    if expected and got and not wrong:
        return
    told = "it takes no model first" if not expected else f"got {type(model).__name__}" if not got else ""
    raise TrainingError(
        message(
            f"the plan of `{graph.name}` is not one of this loss and this model",
            *([told] if told else wrong[:_SHOWN]),
            *([f"and {len(wrong) - _SHOWN} more"] if not told and len(wrong) > _SHOWN else []),
            remedy="Trace the loss of the same model: tp.plan(tp.trace(loss, model, *types), mesh, {...}).",
        )
    )


_SHOWN = 20


def _shown(kind: Any) -> str:
    return f"{kind.dtype}{tuple(kind.shape)}"
