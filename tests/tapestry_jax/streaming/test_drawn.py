"""Programs drawn at random, streamed under plans drawn at random, against the unplanned ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import jax
import numpy as np

import tapestry_jax as tp
from laws.strategies.plans import dimensions
from tapestry_jax.planning.entries.items import Chunks
from tests.pairs.pair import TOLERANCES, difference, draw_pair
from tests.pairs.plans import repaired
from tests.thoroughly import thoroughly


def verdict(seed: str) -> str:
    """What comes of a drawn program under a drawn plan: `equal`, or why nothing was streamed."""
    program, placing = draw_pair(seed, 1)[0]
    rng, graph = Random(seed), program.graph
    dim = rng.choice(dimensions(graph))
    mesh_axes = tuple(item for item in placing.entries.get(dim, ()) if isinstance(item, str))
    entries = {
        dim: (*mesh_axes, rng.choice((tp.chunks(2), tp.chunks(3), tp.chunks(size=1), tp.chunks(size=2)))),
        **{other: items for other, items in placing.entries.items() if other != dim},
    }
    _, plan, _ = repaired(replace(placing, entries=entries, fsdp=None), graph, seed)
    if plan is None or not any(isinstance(item, Chunks) for _, items in plan.entries for item in items):
        return "not planned"
    pairs = zip(jax.tree.leaves(program.args()), graph.inputs, strict=True)
    args = [np.asarray(array, node.results[0].dtype) for array, node in pairs]
    try:
        job = tp.stream(plan, None, args)
    except tp.PlanError:
        return "refused"
    # Where 64 bits are off, what was drawn in them is of 32.
    tolerance = max(TOLERANCES.get(str(each.dtype), 0) for each in args)
    for got, want in zip(jax.tree.leaves(job.run()), jax.tree.leaves(graph(*args)), strict=True):
        assert (text := difference(got, np.asarray(want), tolerance)) is None, f"{seed}: {placing}\n{text}"
    return "equal" if job.split.passes else "nothing to stream"


def test_drawn_programs_are_streamed_as_they_are_unplanned() -> None:
    found = Counter(verdict(f"streamed/{number}") for number in range(24 if thoroughly() else 7))
    assert found["equal"] >= 3, found
