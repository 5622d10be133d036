"""Sums of the gradients of arguments: nothing waits for them, so compilers send those over the same axes as one.

An all-reduce of small values takes its latency, whatever it sends. A model has tens of parameters that lie whole on an
axis over which its rows are cut, and one all-reduce carries the gradients of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from combinators.frozen import changed
from tapestry_jax.machines.laid import Laid
from tapestry_jax.machines.transfer import latency
from tapestry_jax.planning.prediction.collective import Collective
from tapestry_jax.planning.prediction.collectives import Place
from tapestry_jax.planning.pricing.cost import TransferCost
from tapestry_jax.planning.scheduling.schedule import Convert, Repeat, Schedule

LARGEST = 30 * 2**20
"""Bytes from which on a sum is sent by itself: the compiler for GPUs combines no more, and latency is little there."""


def combined(schedule: Schedule, laid: Laid, transfers: Iterable[tuple[Place, TransferCost]]) -> Iterator[TransferCost]:
    """The transfers, of which sums of gradients over the same axes have the latency of one: the first has it.

    Args:
      schedule: that sends them.
      laid: the mesh on its machine.
      transfers: with the places where they are sent, each priced alone.
    """
    begun: set[frozenset[str]] = set()
    for place, each in transfers:
        if not (is_small_sum(each) and _is_of_argument(schedule, place)):
            yield each
            continue
        if frozenset(each.axes) in begun:
            each = changed(each, seconds=max(each.seconds - latency(laid, each.kind, each.axes), 0.0))
        begun.add(frozenset(each.axes))
        yield each


def is_small_sum(sent: Collective | TransferCost) -> bool:
    """Whether it is a sum of gradients that goes with others, where it is one of an argument's and outside of loops."""
    return sent.kind == "all-reduce" and sent.backward and sent.bytes < LARGEST


def _is_of_argument(schedule: Schedule, place: Place) -> bool:
    """Whether what is sent at a place, outside of loops, is the gradient of an argument."""
    if len(place) != 1:
        return False
    (number,) = place
    step = schedule.steps[number]
    if isinstance(step, Convert):
        return step.source in schedule.inputs
    if not isinstance(step, Repeat):
        return False
    # Of a loop what is changed once, before its turns: slices of what is stacked, and what is the same in all of them.
    outer = dict(zip(step.body.inputs, step.operands, strict=True))
    for early in step.prologue:
        outer[early.result] = outer[early.source]
    return all(outer[early.source] in schedule.inputs for early in step.prologue)
