"""Downhill: one variable after the other is changed to its best value."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tapestry_jax.searching.finding.energy import Energies
from tapestry_jax.searching.finding.moves import steps
from tapestry_jax.searching.method import Stop
from tapestry_jax.searching.space import Choice

_BETTER = 1e-9


def descend(
    known: Energies, rng: Random | None, stop: Stop, start: Choice, most: float, among: Sequence[int] | None = None
) -> Choice:
    """Change one variable after the other to its best value, until none gets better.

    Args:
      known: what was found so far; it keeps the best.
      rng: draws the order anew each time; None for the order given.
      stop: when to end.
      start: where to begin.
      most: so many candidates are known in the end, at most.
      among: the variables to change; by default all that except no operation.

    Returns:
      Where it ends.
    """
    here, better = start, True
    while better:
        better = False
        order = [at for at, each in enumerate(known.space.variables) if each.kind != "except"]
        order = order if among is None else list(among)
        if rng is not None:
            rng.shuffle(order)
        for at in order:
            for there in steps(known.space, here, at):
                if stop() or known.tried >= most:
                    return here
                if known.of(there) < known.of(here) - _BETTER:
                    here, better = there, True
    return here
