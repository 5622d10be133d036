"""Drawn programs, one dimension of each in chunks, in all their embeddings: see `laws.assert_embeddings`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import jax
import numpy as np
import pytest

import laws
import tapestry_jax as tp
from laws.strategies.plans import dimensions
from tapestry_jax.planning.entries.items import Chunks
from tests.pairs.pair import draw_pair
from tests.pairs.plans import repaired
from tests.thoroughly import thoroughly
from tests.workers import worker_in_this_process


@pytest.fixture
def client() -> Iterator[Any]:
    with worker_in_this_process() as found:
        yield found


def drawn(seed: str) -> tuple[tp.Plan, list[Any]] | None:
    """A plan in chunks, and arguments; None where no plan of these has any."""
    program, placing = draw_pair(seed, 1)[0]
    rng, graph = Random(seed), program.graph
    dim = rng.choice(dimensions(graph))
    entries = {dim: (rng.choice((tp.chunks(2), tp.chunks(size=1), tp.chunks(size=2))),)}
    others = {other: items for other, items in placing.entries.items() if other != dim}
    _, plan, _ = repaired(replace(placing, entries=entries | others, fsdp=None), graph, seed)
    if plan is None or not any(isinstance(item, Chunks) for _, items in plan.entries for item in items):
        return None
    pairs = zip(jax.tree.leaves(program.args()), graph.inputs, strict=True)
    return plan, [np.asarray(array, node.results[0].dtype) for array, node in pairs]


def held(seed: str, client: Any) -> tuple[str, ...]:
    """The embeddings that a drawn program has."""
    found = drawn(seed)
    return () if found is None else laws.assert_embeddings(*found, name=seed, engine=client).held


# One program, and its faults, in all embeddings are in tests/laws/test_embeddings.py.
@pytest.mark.thorough
def test_drawn_programs_are_the_same_in_all_embeddings(client: Any) -> None:
    numbers = range(14, 20 if thoroughly() else 17)
    found = Counter(law for number in numbers for law in held(f"embedded/{number}", client))
    assert min(found[law] for law in ("plan.blocks", "plan.values")) == len(numbers), found
    assert found["plan.streamed"] >= 2 * len(numbers) // 3, found
    assert found["plan.clustered"] >= 2 * len(numbers) // 3, found
