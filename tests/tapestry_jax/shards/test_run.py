"""Blocks run one by one give what the program gives, whatever the plan."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.shards.numeric.kernels import Kernels
from tapestry_jax.shards.parts import Move
from tests.tapestry_jax.shards.examples import PLANS, plan_of, shards_of
from tests.tapestry_jax.shards.proof.test_damage import box, piece_of


def arguments(graph: tp.Graph) -> Any:
    rng = np.random.default_rng(3)
    leaves = [rng.normal(size=node.results[0].shape).astype(node.results[0].dtype) for node in graph.inputs]
    return jax.tree.unflatten(graph.in_tree, leaves)


@pytest.mark.parametrize("name", PLANS)
def test_blocks_one_by_one_give_the_values_of_the_program(name: str) -> None:
    graph, shards = plan_of(name).graph, shards_of(name)
    args = arguments(graph)
    got, want = shards.run(*args), graph(*args)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(one, np.asarray(other), rtol=1e-4, atol=1e-5)


def test_a_piece_may_hold_a_cell_twice() -> None:
    """A rim that goes round a periodic axis and further: the proof takes it, and so do the values."""
    graph, further = plan_of("periodic").graph, piece_of(Move, box(0, count=24), inside=True)(shards_of("periodic"))
    further.verify(graph)
    args = arguments(graph)
    np.testing.assert_allclose(further.run(*args), np.asarray(graph(*args)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", PLANS)
def test_any_block_run_twice_gives_the_same_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In another place of the memory, too: what adds up in another order there would differ."""
    blocks = 0

    def twice(kernels: Kernels, part: Any, *leaves: Any) -> Any:
        nonlocal blocks
        blocks += 1
        first = run(kernels, part, *leaves)
        second = run(kernels, part, *([np.copy(each, order="F") for each in listed] for listed in leaves))
        assert [each.tobytes() for each in first] == [each.tobytes() for each in second]
        return first

    run = Kernels.run
    monkeypatch.setattr(Kernels, "run", twice)
    shards_of(name).run(*arguments(plan_of(name).graph))
    assert blocks


def test_other_arguments_are_refused() -> None:
    shards = shards_of("chunks")
    first, *others = arguments(plan_of("chunks").graph)
    with pytest.raises(tp.SignatureError, match=r"traced for other arguments\n  x: expected .*, got float32\(3\)"):
        shards.run(np.zeros(3, np.float32), *others)
    with pytest.raises(tp.GraphError, match="takes 3 arrays, got 4"):
        shards.run(first, *others, first)
    with pytest.raises(tp.GraphError, match="argument `x` of `mlp` is not an array"):
        shards.run("x", *others)


def test_what_is_no_traced_program_is_refused() -> None:
    with pytest.raises(tp.PlanError, match="blocks are held against a traced program\n  got int: 3"):
        shards_of("chunks").verify_lowered(3)
