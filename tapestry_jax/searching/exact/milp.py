"""The method `milp`: the factored model of a program, solved as an integer program, priced exactly by the schedule."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from combinators.frozen import dataclass
from tapestry_jax.machines.laid import lay
from tapestry_jax.planning.asked import Asked
from tapestry_jax.planning.derivatives.gradients import differentiated
from tapestry_jax.planning.entries.placement import Placer
from tapestry_jax.planning.entries.remat import Remat, recomputable
from tapestry_jax.planning.planned import planned
from tapestry_jax.planning.prediction.flow import flow_of
from tapestry_jax.searching.evaluated import Evaluated, evaluate, weigh
from tapestry_jax.searching.exact.asked import asked_for
from tapestry_jax.searching.exact.build import Builder
from tapestry_jax.searching.exact.homes import Chosen, DoesNotFitError, NotModelledError
from tapestry_jax.searching.exact.model import Model, undominated
from tapestry_jax.searching.exact.prices import Prices
from tapestry_jax.searching.exact.solve import solve
from tapestry_jax.searching.method import Bound, Proposal, Stop
from tapestry_jax.searching.problem import Problem
from tapestry_jax.searching.space import Space

TIGHTER = 6
"""How often a model is solved again with less memory, where what it found needs more than it thought."""
_CLOSER = 0.25
"""By so much of what is lacking a choice has to be lighter than those before it, for another one to be asked for."""


@dataclass(frozen=True, eq=False)
class Modelled:
    """A problem as a model.

    Attributes:
      model: what is chosen, and its prices.
      chosen: what its picks stand for.
      asked: what the user fixed, and what is computed again.
      placer: of that.
    """

    model: Model
    chosen: tuple[Chosen, ...]
    asked: Asked
    placer: Placer

    def asked_for(self, problem: Problem, choice: tuple[int, ...]) -> Asked:
        """What to ask of planning for a choice."""
        return asked_for(problem.graph, self.asked, self.placer, self.chosen, choice)


def milp(problem: Problem, space: Space, seed: int, stop: Stop) -> Iterator[Proposal]:
    """Solve the model, with and without computing layers again, and give what it finds; then a bound on all of them."""
    del space, seed
    prices = Prices(lay(problem.machine, problem.shape.axes), problem.shape, problem.graph)
    bounds: list[float] = []
    best = math.inf
    for remat in _remats(problem):
        if bounds and stop():
            return
        try:
            modelled = modelled_as(problem, remat, prices, _memory(problem))
        except NotModelledError:
            return
        except DoesNotFitError:
            bounds.append(math.inf)
            continue
        for proposal in _solved(problem, modelled, stop, best):
            if isinstance(proposal, Bound):
                bounds.append(proposal.seconds)
            else:
                found = evaluate(problem, proposal)
                if isinstance(found, Evaluated) and _fits(problem, found):
                    best = min(best, found.seconds)
                yield proposal
    # Of what the solver had no time for, nothing is known.
    if min(bounds) > 0:
        yield Bound(min(bounds))


def placed_beside(problem: Problem, taken: Sequence[str], whole: Sequence[str], stop: Stop) -> Asked | None:
    """What the model places on some of the mesh axes, whatever memory it takes; None where it knows no such plan.

    Args:
      problem: the program, and where it runs.
      taken: mesh axes that are left to others, such as stages.
      whole: dimensions that are left to others, such as those that flow through stages.
      stop: when to end.
    """
    names = {name for name, _ in problem.fixed.entries}
    others = tuple((name, ()) for name in whole if name not in names)
    fixed = replace(problem.fixed, entries=(*problem.fixed.entries, *others))
    prices = Prices(lay(problem.machine, problem.shape.axes), problem.shape, problem.graph, frozenset(taken))
    try:
        modelled = modelled_as(replace(problem, fixed=fixed), fixed.remat, prices)
    except NotModelledError:
        return None
    solution = solve(modelled.model, limit=_left(stop))
    if solution.is_interrupted:
        raise KeyboardInterrupt
    return modelled.asked_for(problem, solution.choice) if solution.choice else None


def modelled_as(problem: Problem, remat: Remat, prices: Prices, memory: float = math.inf) -> Modelled:
    """The model of a problem.

    Args:
      problem: the program, and where it runs.
      remat: the scopes that are computed again.
      prices: on its mesh.
      memory: bytes of a device.

    Raises:
      NotModelledError: for what the model does not know: loops in time, stages, halos.
      DoesNotFitError: where it is found before the model is whole that nothing fits.
    """
    fixed = problem.fixed
    items = [item for entries in (fixed.entries, *(own for _, own in fixed.ops)) for _, own in entries for item in own]
    if not all(isinstance(item, str) for item in items):
        raise NotModelledError("entries in time")
    asked = replace(fixed, remat=remat)
    placer = fixed.placer(problem.shape)
    whole = planned(problem.graph, problem.mesh, replace(asked, entries=(), ops=(), inputs=(), outputs=()))
    layouts = fixed.input_layouts(problem.graph, problem.shape), fixed.output_layouts(problem.graph, problem.shape)
    builder = Builder(prices, placer, *layouts)
    sources = {whole.inputs[at] for at in differentiated(problem.graph, problem.grad)}
    model = undominated(builder.model(whole, flow_of(whole, sources), memory))
    return Modelled(model, tuple(builder.picks.chosen), asked, placer)


def _remats(problem: Problem) -> list[Remat]:
    scopes = recomputable(problem.graph)
    if problem.grad is False or problem.fixed.remat or not problem.remat or not scopes:
        return [problem.fixed.remat]
    return [(), tuple((scope, True) for scope in scopes)]


def _solved(problem: Problem, modelled: Modelled, stop: Stop, best: float) -> Iterator[Proposal]:
    """The best choices of a model, and a bound; with less memory as long as what it finds does not fit.

    Where there is none with less, what is alive for a while is too much, and not what stays: another choice is asked
    for that holds as much. `misses` is the memory in which there is none.
    """
    model = modelled.model
    limit = _memory(problem)
    memory, misses, held = limit, 0.0, limit
    heavy: list[tuple[int, ...]] = []
    lightest, helps = math.inf, True
    for attempt in range(TIGHTER):
        # In turns: less memory, and as much as there is without the choices that were too heavy, while these differ.
        others = tuple(heavy) if attempt % 2 == 0 and helps else ()
        solution = solve(model, limit if others else memory, than=best, limit=_left(stop), without=others)
        if not attempt:
            yield Bound(solution.bound)
        if not solution.choice:
            if solution.is_interrupted:
                raise KeyboardInterrupt
            if not attempt or others or stop() or solution.bound < math.inf:
                return
            # Too little: between it and what was too much.
            misses, memory = memory, (memory + held) / 2
            continue
        asked = modelled.asked_for(problem, solution.choice)
        found = evaluate(problem, asked)
        if solution.is_interrupted:
            # What was evaluated is known to whoever takes the interrupt.
            raise KeyboardInterrupt
        yield asked
        if stop() or not isinstance(found, Evaluated) or _fits(problem, found):
            return
        heavy.append(solution.choice)
        needed = weigh(problem, found).total
        helps, lightest = not others or needed < lightest - _CLOSER * (lightest - limit), min(lightest, needed)
        if not others:
            # What an operation keeps inside of it, and what is alive for a while, is not in the model.
            held = model.held(solution.choice)
            memory = max(held - 1.05 * (needed - limit), (held + misses) / 2)


def _memory(problem: Problem) -> float:
    """Bytes of a device."""
    return math.inf if problem.memory is None else float(problem.memory)


def _left(stop: Stop) -> float:
    """Seconds until the method has to end."""
    return math.inf if stop.limit is None else stop.began + stop.limit - time.monotonic()


def _fits(problem: Problem, found: Evaluated) -> bool:
    return problem.memory is None or weigh(problem, found).total <= problem.memory
