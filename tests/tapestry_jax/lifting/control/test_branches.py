"""Loops until a condition holds, and choices: cut along what all of their programs map."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tapestry_jax as tp
from combinators.graphs.nodes import Loop
from tapestry_jax.lifting.control.inside import Inside, written
from tapestry_jax.lifting.rules.unknown import unknown
from tapestry_jax.lifting.table import RULES, THROUGH
from tapestry_jax.lifting.values import Values
from tapestry_jax.lifting.walk import Walk
from tests.tapestry_jax.lifting.agree import agrees, close, dims

SOURCE = np.random.default_rng(0)
X, W = SOURCE.standard_normal((4, 6)).astype("f4"), SOURCE.standard_normal((6, 6)).astype("f4")


def alternating(count: Any, x: Any, w: Any) -> Any:
    """A choice and a scan in a loop."""

    def turn(carry: Any) -> Any:
        at, x = carry
        scanned = lambda x: lax.scan(lambda c, w: (jnp.tanh(c * w), None), x, w)[0]  # noqa: E731
        return at + 1, lax.cond(at % 2 == 0, scanned, lambda x: x * 2, x)

    return lax.while_loop(lambda carry: carry[0] < count, turn, (0, x))[1]


# The function, its arguments, the dimensions that can be cut, and whether it has gradients.
CASES: dict[str, Any] = {
    "a choice of products": (
        lambda at, x, w: lax.cond(at > 0, lambda x, w: jnp.tanh(x @ w), lambda x, w: x @ w * 2, x, w),
        (np.float32(1), X, W[:, :5]),
        {"batch", "w_1"},
        True,
    ),
    "a branch that sums": (
        lambda at, _, x: lax.switch(at, [jnp.sin, jnp.cos, lambda x: x.sum(0)[None] * x], x),
        (np.int32(1), 0.0, X.T),
        {"x_1"},
        True,
    ),
    "repeated as often as an argument says": (
        lambda count, x, w: lax.fori_loop(0, count, lambda at, x: jnp.tanh(x @ w) + at, x),
        (np.int32(3), X, W),
        {"batch"},
        False,
    ),
    "positions in a loop": (
        lambda count, x: lax.fori_loop(0, count, lambda _, x: x * 0.5 + jnp.arange(4.0)[:, None], x),
        (np.int32(3), X),
        {"batch", "x_1"},
        False,
    ),
    "a choice and a scan in a loop": (alternating, (np.int32(3), X, W[:3]), {"batch", "w_1"}, False),
    "what is asked for is whole": (
        lambda y, x: lax.while_loop(
            lambda c: (c[0] ** 2).sum() < 50, lambda c: (c[0] * 1.5, c[1] * 2 + c[0].sum()), (y, x)
        )[1],
        (np.ones(3, "f4"), X),
        {"batch", "x_1"},
        False,
    ),
    "rows one after the other": (
        lambda count, y, x: lax.fori_loop(0, count, lambda _, x: lax.scan(lambda c, r: (c + r, c * r), y, x)[1], x),
        (np.int32(2), W[0], X),
        {"y_0"},
        False,
    ),
    "keys in a loop": (
        lambda count, x, key: lax.fori_loop(
            0, count, lambda _, c: (c[0] + 1, jax.random.split(c[1])[0]), (x, jax.random.wrap_key_data(key))
        )[0],
        (np.int32(3), X, np.asarray([0, 1], np.uint32)),
        {"batch", "x_1"},
        False,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_every_program_inside_maps_can_be_cut(name: str) -> None:
    function, args, cut, grads = CASES[name]
    names = {"x": "batch _"} if any(arg is X for arg in args) else None
    plans = [dict(zip(sorted(cut), ("a", "b"), strict=False))]
    graph = agrees(function, *args, names=names, grads=grads, plans=plans)
    assert graph.opaque() == ()
    assert set(dims(graph)) == cut


@pytest.mark.parametrize(
    ("inside", "cut"),
    [
        (lambda x: x + x.reshape(-1).sum(), set[str]()),
        (lambda x: jnp.sort(x.reshape(-1)).reshape(4, 6), set[str]()),
        (lambda x: (x.reshape(4, 2, 3).sum(1, keepdims=True) + x.reshape(4, 2, 3)).reshape(4, 6), {"x_0"}),
    ],
    ids=["merged and added up", "merged and sorted", "split and added up"],
)
def test_what_is_merged_or_split_inside_is_whole(inside: Any, cut: set[str]) -> None:
    graph = agrees(lambda at, x: lax.cond(at > 0, inside, lambda x: x, x), np.float32(1), X)
    assert set(dims(graph)) == cut


@pytest.mark.parametrize(
    "function",
    [
        lambda count, x: lax.while_loop(lambda x: x.sum() < count, lambda x: x * 2, x),
        lambda count, x: lax.fori_loop(0, count, lambda _, x: x + x.T, x),
        lambda count, x: lax.fori_loop(0, count, lambda _, x: x.T, x),
    ],
    ids=["asks for all of its cells", "reads cells under a second name", "turns what it carries"],
)
def test_a_loop_whose_cells_need_each_other_is_a_loop_of_the_graph(function: Any) -> None:
    graph = agrees(function, np.int32(3), W, grads=False)
    assert graph.opaque() == () and len(dims(graph)) == 2
    (loop,) = (node for node in graph.nodes if isinstance(node, Loop))
    assert loop.until


def test_a_solver_that_was_lifted_is_cut_as_a_written_one() -> None:
    def solve(a: Any, b: Any) -> Any:
        def step(state: Any) -> Any:
            x, r, p, rr, count = state
            q = a @ p
            length = rr / (p @ q)
            x, r = x + length * p, r - length * q
            return x, r, r + (r @ r) / rr * p, r @ r, count + 1

        first = jnp.zeros_like(b), b, b, b @ b, 0
        return lax.while_loop(lambda state: (state[3] > 1e-6) & (state[4] < 40), step, first)[::4]

    root = SOURCE.normal(size=(12, 12))
    args = (np.eye(12) + 0.05 * root @ root.T).astype("f4"), SOURCE.normal(size=12).astype("f4")
    graph = tp.lift(solve, *args, names="row column, row")
    plan = tp.plan(graph, tp.mesh(a=4), {"row": "a"})
    plan.verify()
    close(plan.compile()(*plan.put(*args)), solve(*args), 1e-4, "planned")
    assert graph.opaque() == () and {sent.kind for sent in plan.collectives()} <= {"all-gather", "all-reduce"}


def test_what_is_not_known_inside_is_listed() -> None:
    def turn(carry: Any) -> Any:
        at, x, rest = carry
        return at + 1, x * 2, lax.reduce(rest, np.float32(0), lambda a, b: a + b + a * b, (0,))[None] * rest

    def repeated(x: Any, rest: Any) -> Any:
        return lax.while_loop(lambda carry: carry[0] < x[0, 0], turn, (0.0, x, rest))[1:]

    graph = tp.lift(
        lambda x, rest, at: lax.cond(at, lambda x, r: (x, r), lambda x, r: turn((0, x, r))[1:], x, rest), X, X[0], True
    )
    (found,) = graph.opaque()
    assert found.primitive == "reduce in cond" and __file__ in found.source
    assert set(dims(graph)) == {"x_0", "x_1"}
    assert [found.primitive for found in tp.lift(repeated, X, X[0]).opaque()] == ["reduce in while"]


def test_a_loop_in_a_plan_sends_nothing() -> None:
    function, args, _, _ = CASES["a choice and a scan in a loop"]
    graph = tp.lift(function, *args, names={"x": "batch _"})
    plan = tp.plan(graph, tp.mesh(a=2, b=2), {"batch": "a", "w_1": "b"})
    plan.verify()
    assert plan.collectives() == ()
    close(plan.compile()(*args), function(*args), 2e-5, "planned")


def test_a_dimension_that_one_operation_folds_is_whole_in_all() -> None:
    walk = Walk(RULES, unknown, Values(), THROUGH)
    inside = Inside(walk)
    named = inside.new((4, 6), "x")
    program = written(walk, jax.make_jaxpr(lambda x: x * x.sum(0))(X), "program")
    (result,) = inside.run(program, [named])
    names, cut, told = inside.finish([named, result])
    assert result == named and told == []
    assert named[1] is not None
    assert cut == {names[named[1].find()]}


def test_rows_that_stop_by_themselves_take_turns_of_their_own() -> None:
    def row(x: Any) -> Any:
        return lax.while_loop(
            lambda c: (jnp.abs(c[1]).sum() < 6) & (c[0] < 5), lambda c: (c[0] + 1, c[1] * 1.3), (0, x)
        )

    assert len({*jax.vmap(row)(X)[0].tolist()}) > 1
    assert agrees(jax.vmap(row), X, plans=[{"full": "b"}], grads=False).opaque() == ()


def root(x: Any) -> Any:
    """Newton's square root, and how many turns it took."""
    return lax.while_loop(
        lambda c: jnp.abs(c[0] * c[0] - x) > 1e-5, lambda c: (0.5 * (c[0] + x / c[0]), c[1] + 1), (x, 0)
    )


def grown(x: Any, w: Any) -> Any:
    return lax.while_loop(lambda y: (y**2).sum() < 50.0, lambda y: y * 1.5 + jnp.tanh(w @ y), x)


# The function, its arguments, plans, and the dimensions that can be cut: a device stops when its own cells have.
BATCHES: dict[str, Any] = {
    "numbers": (jax.vmap(root), (SOURCE.uniform(1, 9, 13),), [{"x_0": ("a", "b")}, {"x_0": tp.chunks(2)}], {"x_0"}),
    "rows": (jax.vmap(grown, (0, None)), (X[:, :4], W[:4, :4]), [{"x_0": "b"}], {"x_0"}),
    "numbers twice": (
        jax.vmap(jax.vmap(root)),
        (SOURCE.uniform(1, 9, (5, 6)),),
        [{"x_0": "b", "x_1": "a"}],
        {"x_0", "x_1"},
    ),
    "what was sorted, where copies fill blocks": (
        lambda x: jax.vmap(lambda x: lax.while_loop(lambda c: c < 100, lambda c: c * 2, x))(jnp.sort(x)),
        (SOURCE.uniform(1, 9, 13),),
        [{"x_0": ("a", "b")}],
        {"x_0"},
    ),
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_loop_of_which_each_cell_stops_by_itself_is_cut_along_its_batch(name: str) -> None:
    function, args, plans, cut = BATCHES[name]
    graph = agrees(function, *(arg.astype("f4") for arg in args), plans=plans, grads=False)
    assert graph.opaque() == () and set(dims(graph)) == cut
