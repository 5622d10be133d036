"""A kernel that holds sizes of its own is right for the whole index space and for no part of it, and refused there."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from combinators.errors import KernelError

X = jax.ShapeDtypeStruct((6, 3), jnp.float32)
KERNELS = {
    "map that broadcasts": (tp.Map(lambda x: x + jnp.full(3, 2.0), "x c -> x c"), {"c": "m"}),
    "map in chunks": (tp.Map(lambda x: x + jnp.full(3, 2.0), "x c -> x c"), {"c": tp.chunks(3)}),
    "map that cannot": (tp.Map(lambda x: x + jnp.ones((6, 1)), "x c -> x c"), {"x": "m"}),
    "fold": (tp.Reduce(lambda x: x.sum(0) + jnp.zeros(3), "x c -> c", tp.monoids.Sum), {"c": "m"}),
    "fold in a ring": (
        tp.Reduce(lambda x: jnp.maximum(x.max(0), jnp.zeros(3)), "x c -> c", tp.monoids.Max),
        {"c": "m", "x": tp.ring("m")},
    ),
    "scan": (tp.Scan(tp.monoids.Sum, "x c -> x c", "x", kernel=lambda x: x * jnp.ones(3)), {"c": tp.chunks(3)}),
    "dense": (
        tp.Reduce(lambda x: x.sum(0), "x c -> c", tp.monoids.Sum, dense=lambda x: x.sum(0) + jnp.zeros(3)),
        {"c": "m"},
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_of_one_size_is_refused_where_its_axes_are_cut(name):
    arrow, entries = KERNELS[name]
    graph = tp.trace(arrow, tp.TensorType({"x": 6, "c": 3}))
    jax.eval_shape(tp.plan(graph, tp.mesh(m=3), {}).compile().jitted, X)
    run = tp.plan(graph, tp.mesh(m=3), entries).compile()
    with pytest.raises(KernelError, match="is not right for a box of any size") as caught:
        jax.eval_shape(run.jitted, X)
    lines = str(caught.value).split("\n")
    assert lines[2].startswith("  box x=") and ("c=1" in lines[2]) == ("c" in entries)
    assert lines[-1].startswith("  Take sizes from the blocks' shapes")


def test_the_error_says_what_the_kernel_gives_and_what_fails_in_it():
    for name, line in [
        ("fold", "  it gives (c) the shape (3,), and not (1,)"),
        ("map that cannot", "  TypeError: add got incompatible shapes for broadcasting: (2, 3), (6, 1)."),
    ]:
        arrow, entries = KERNELS[name]
        plan = tp.plan(tp.trace(arrow, tp.TensorType({"x": 6, "c": 3})), tp.mesh(m=3), entries)
        with pytest.raises(KernelError) as caught:
            jax.eval_shape(plan.compile().jitted, X)
        assert line in str(caught.value).split("\n")


@pytest.mark.parametrize("entries", [{"x": tp.chunks(3)}, {"c": "m", "x": tp.ring("m")}])
def test_a_kernel_that_chooses_by_the_size_of_its_block_is_refused_where_it_chooses_otherwise(entries):
    arrow = tp.Reduce(lambda x: x.sum(0) if len(x) > 4 else x.max(0), "x c -> c", tp.monoids.Sum)
    graph = tp.trace(arrow, tp.TensorType({"x": 6, "c": 3}))
    with pytest.raises(KernelError, match="it may read how many cells its block has") as caught:
        jax.eval_shape(tp.plan(graph, tp.mesh(m=3), entries).compile().jitted, X)
    assert "box x=2" in str(caught.value)
    # Along what it does not count it may be cut.
    jax.eval_shape(tp.plan(graph, tp.mesh(m=3), {"c": "m"}).compile().jitted, X)


@pytest.mark.parametrize("entry", ["m", tp.striped("m"), tp.chunks(3)])
@pytest.mark.parametrize("kernel", [lambda x: 2 * x, jax.lax.stop_gradient], ids=["values", "slopes"])
def test_it_is_refused_where_the_cells_that_are_left_are_fewer(entry, kernel):
    # 13 cells in three parts: 5, and then 3 or 4.
    arrow = tp.Reduce(lambda x: x.sum(0) if len(x) > 4 else kernel(x).sum(0), "x c -> c", tp.monoids.Sum)
    graph = tp.trace(arrow, tp.TensorType({"x": 13, "c": 3}))
    with pytest.raises(KernelError, match="it may read how many cells its block has") as caught:
        jax.eval_shape(tp.plan(graph, tp.mesh(m=3), {"x": entry}).compile().jitted, jnp.zeros((13, 3)))
    assert "box x=4" in str(caught.value) or "box x=3" in str(caught.value)


@pytest.mark.parametrize("entry", ["m", tp.chunks(3)])
def test_a_kernel_may_give_plain_numbers(entry):
    arrow = tp.Reduce(lambda x, y: (2.0, len(y)), "x, x -> , ", tp.monoids.Max & tp.monoids.Sum)
    x = jnp.zeros(6)
    found = tp.plan(tp.trace(arrow, x, x), tp.mesh(m=3), {"x": entry}).compile()(x, x)
    assert [float(leaf) for leaf in found] == [2, 6] and [leaf.dtype for leaf in found] == [jnp.float32, jnp.int32]
