"""Problems as models, and plans as choices of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from jax.sharding import AbstractMesh, AxisType

import tapestry_jax as tp
from tapestry_jax.machines.known import find
from tapestry_jax.machines.laid import lay
from tapestry_jax.planning.asked import Asked
from tapestry_jax.planning.derivatives.gradients import differentiated
from tapestry_jax.planning.planned import planned
from tapestry_jax.planning.prediction.flow import flow_of
from tapestry_jax.planning.scheduling.schedule import Region, Repeat, Run, Schedule, Step
from tapestry_jax.searching.exact.asked import asked_for
from tapestry_jax.searching.exact.build import Builder
from tapestry_jax.searching.exact.homes import Chosen
from tapestry_jax.searching.exact.milp import Modelled
from tapestry_jax.searching.exact.model import Model
from tapestry_jax.searching.exact.prices import Prices
from tapestry_jax.searching.problem import Problem


def abstract(**axes: int) -> AbstractMesh:
    return AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


def problem_of(
    graph: tp.Graph, mesh: Any, machine: str = "h100", grad: Any = False, memory: int | None = None
) -> Problem:
    return Problem(graph, mesh, find(machine), memory, grad, Asked((), (), (), ()))


def modelled(problem: Problem, remat: Any = (), memory: float = math.inf) -> Modelled:
    """The whole model, changes of layout that nobody has to choose as well."""
    asked = Asked((), (), (), (), remat=remat)
    placer = asked.placer(problem.shape)
    prices = Prices(lay(problem.machine, problem.shape.axes), problem.shape, problem.graph)
    whole = planned(problem.graph, problem.mesh, asked)
    builder = Builder(prices, placer, {}, {})
    sources = {whole.inputs[at] for at in differentiated(problem.graph, problem.grad)}
    model = builder.model(whole, flow_of(whole, sources), memory)
    return Modelled(model, tuple(builder.picks.chosen), asked, placer)


def drawn(found: Modelled, chance: Random) -> tuple[int, ...]:
    """Any placement of every operation, and any layout of every argument."""
    plain = ([at for at, option in enumerate(each.options) if option.scatter is None] for each in found.chosen)
    return tuple(map(chance.choice, plain))


def asked_of(problem: Problem, found: Modelled, choice: Sequence[int]) -> Asked:
    return asked_for(problem.graph, found.asked, found.placer, found.chosen, choice)


def settled(found: Modelled, choice: Sequence[int], schedule: Schedule) -> tuple[int, ...]:
    """The same choice with what planning decides by itself: which sums are scattered, and what loops carry."""
    steps = {step.path: step for step in _steps(schedule)}
    return tuple(_settled(each, at, steps) for each, at in zip(found.chosen, choice, strict=True))


def _settled(chosen: Chosen, at: int, steps: dict[str, Step]) -> int:
    if chosen.kind == "carry":
        path, _, position = chosen.paths[0].rpartition("/")
        loop = steps[path]
        assert isinstance(loop, Repeat)
        carried = loop.body.slots[loop.body.inputs[int(position)]].layout
        return [option.layout for option in chosen.options].index(carried)
    step = steps.get(chosen.paths[0])
    if chosen.kind == "operation" and isinstance(step, Run):
        options = [(option.cuts, option.scatter) for option in chosen.options]
        return options.index((dict(step.cuts), step.scatter))
    return at


def _steps(schedule: Schedule) -> Iterator[Step]:
    for step in schedule.steps:
        yield step
        if isinstance(step, Repeat | Region):
            yield from _steps(step.body)


def choices(model: Model) -> Iterator[tuple[int, ...]]:
    """All choices, one by one."""

    def extended(before: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(before) == len(model.picks):
            yield before
            return
        for at in range(len(model.picks[len(before)].seconds)):
            yield from extended((*before, at))

    yield from extended(())
