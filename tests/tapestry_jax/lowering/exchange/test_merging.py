"""What a monoid declares is asked where a plan relies on it, and refused where it is false."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tapestry_jax as tp

X = np.array([0, 0, 0, 5, 1, 2, 3, 0, 7, 8, 9, 4], np.float32) / 4


def folded(monoid: tp.Monoid, lift: Any = jnp.abs) -> tp.Aggregator:
    return tp.Aggregator(lift, monoid, _first)


def _first(state: Any) -> Any:
    return state[0] if isinstance(state, tuple) else state


def first_that_is_not_zero(a: Any, b: Any) -> Any:
    return jnp.where(a != 0, a, b)


def added(a: Any, b: Any) -> Any:
    """Of a maximum and a sum of exponentials."""
    top = jnp.maximum(a[0], b[0])
    return top, a[1] * jnp.exp(a[0] - top) + b[1] * jnp.exp(b[0] - top)


def framed(power: int) -> tp.Monoid:
    """The frame of the second power is that of another monoid."""

    def express(state: Any, top: Any) -> Any:
        return state[1] * jnp.exp(state[0] - top) ** power

    frame = tp.Frame(lambda state: state[0], "max", lambda top: top, express, lambda top, total: (top, total))
    return tp.Monoid((-1e30, 0.0), added, commutative=True, frame=frame)


def logs(power: int) -> tp.Aggregator:
    return tp.Aggregator(lambda x: (x, jnp.ones_like(x)), framed(power), lambda s: s[0] + jnp.log(s[1]))


HALF = tp.Monoid(0.0, lambda a, b: (a + b) / 2, name="half")
CAPPED = tp.Monoid(0.0, lambda a, b: jnp.minimum(a + b, 10))
FAR = tp.Monoid(0.0, lambda a, b: jnp.minimum(a + b, 1e6))
ABOVE = tp.Monoid(0.0, lambda a, b: a + b + jax.nn.relu(a + b - 1e6))
RELU = tp.Monoid(0.0, lambda a, b: jnp.maximum(a + b, 0), commutative=True)
NEARLY = tp.Monoid(-jnp.inf, lambda a, b: jnp.logaddexp(a, b) * 1.001)
LINEAR = tp.Monoid((1.0, 0.0), lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]))
KEEPING = tp.Monoid(0.0, first_that_is_not_zero)
SAID = tp.Monoid(0.0, first_that_is_not_zero, commutative=True, name="first")
NORM = tp.Monoid(0.0, jnp.hypot, commutative=True)
IN_A_RECORD = tp.monoids.struct(a=tp.monoids.Max & NORM, b=tp.monoids.Min)

SCANNED = "t -> t"
FALSE: dict[str, tuple[Any, Any, str]] = {
    "half of both": (tp.scan(folded(HALF), SCANNED, over="t"), "d", "is not associative"),
    "in chunks": (tp.Scan(HALF, SCANNED, over="t"), tp.chunks(3), "is not associative"),
    "JAX's difference": (tp.Scan(tp.Monoid(0.0, jnp.subtract), SCANNED, over="t"), "d", "is not associative"),
    "a fold of differences": (
        tp.fold(tp.Aggregator(jnp.abs, tp.Monoid(0.0, jnp.subtract), jnp.negative), "t -> "),
        "d",
        "is not associative",
    ),
    "the other way round": (
        tp.Scan(tp.monoids.dual(tp.Monoid(0.0, jnp.subtract)), SCANNED, over="t"),
        "d",
        "is not associative",
    ),
    "a sum that stops": (tp.Scan(CAPPED, SCANNED, over="t"), "d", "is not associative"),
    "a sum that stops far off": (tp.Scan(FAR, SCANNED, over="t"), tp.chunks(3), "is not associative"),
    "more above a number": (tp.Scan(ABOVE, SCANNED, over="t"), "d", "is not associative"),
    "beside another": (
        tp.scan(tp.Aggregator(lambda x: (x, x), tp.monoids.Sum & HALF, lambda s: s[1]), SCANNED, over="t"),
        "d",
        "is not associative",
    ),
    "a loop": (lambda x: tp.iterate(tp.Scan(HALF, SCANNED, over="t"), 2)(x), "d", "is not associative"),
    "nearly a sum of logarithms": (tp.scan(folded(NEARLY), SCANNED, over="t"), "d", "is not associative"),
    "stripes": (tp.fold(folded(SAID), "t -> "), tp.striped("d"), "declares commutative=True, and is not"),
    "stripes, beside a sum": (
        tp.fold(tp.Aggregator(lambda x: (x, x), tp.monoids.Sum & SAID, lambda s: s), "t -> "),
        tp.striped("d"),
        "declares commutative=True, and is not",
    ),
    "a frame": (tp.fold(logs(2), "t -> "), "d", "does not merge as its parts or its frame do"),
    "a frame in stripes": (tp.fold(logs(2), "t -> "), tp.striped("d"), "its parts or its frame"),
}
TRUE: dict[str, tuple[Any, Any]] = {
    "above a large number": (
        tp.Scan(tp.Monoid(-jnp.inf, lambda a, b: jnp.maximum(jnp.maximum(a, b), -1e6)), SCANNED, over="t"),
        "d",
    ),
    # Of two cells the third moment is zero, and of one the second: whatever is found there is rounding.
    "moments": (tp.fold(tp.aggregators.Moments() & folded(KEEPING), "t -> "), "d"),
    "a recurrence": (tp.scan(folded(LINEAR, lambda x: (x, x)), SCANNED, over="t"), "d"),
    "a choice": (tp.scan(folded(KEEPING), SCANNED, over="t"), tp.chunks(3)),
    "norms": (tp.Scan(tp.Monoid(0.0, jnp.hypot), SCANNED, over="t"), "d"),
    "an order that is kept": (tp.fold(folded(SAID), "t -> "), "d"),
    "a frame": (tp.fold(logs(1), "t -> "), tp.striped("d")),
    # Parts that are asked stand beside others, which are not, and in stripes come in another order.
    "stripes, beside a sum": (
        tp.fold(tp.Aggregator(lambda x: (x, x), tp.monoids.Sum & NORM, lambda s: s), "t -> "),
        tp.striped("d"),
    ),
    "stripes, in a record": (
        tp.fold(tp.Aggregator(lambda x: {"a": (x, x), "b": x}, IN_A_RECORD, lambda s: s), "t -> "),
        tp.striped("d"),
    ),
}


def planned(arrow: Any, entry: Any, x: Any = X) -> Any:
    return tp.plan(tp.trace(arrow, x), tp.mesh(d=4), {"t": entry}).compile()(x)


@pytest.mark.parametrize("name", FALSE)
def test_what_a_plan_relies_on_and_is_false_is_refused(name: str) -> None:
    arrow, entry, why = FALSE[name]
    with pytest.raises(tp.KernelError, match=why):
        planned(arrow, entry)


def test_frames_of_few_bits_are_asked_too() -> None:
    few = jnp.asarray(X, jnp.bfloat16)
    planned(*TRUE["a frame"], few)
    with pytest.raises(tp.KernelError, match="its parts or its frame"):
        planned(*FALSE["a frame"][:2], few)


def test_what_merging_pulls_back_is_merged_in_any_order_too() -> None:
    @jax.custom_vjp
    def add(a: Any, b: Any) -> Any:
        return a + b

    for twice in (1, 2):
        add.defvjp(lambda a, b: (a + b, None), lambda _, g, twice=twice: (g, twice * g))
        arrow = tp.Scan(tp.Monoid(0.0, add), SCANNED, over="t")
        if twice == 1:
            np.testing.assert_allclose(planned(arrow, "d"), arrow(X), rtol=1e-5)
        else:
            with pytest.raises(tp.KernelError, match="is not associative"):
                planned(arrow, "d")


@jax.custom_vjp
def with_its_rule(a: Any, b: Any) -> Any:
    return a + b


with_its_rule.defvjp(lambda a, b: (a + b, None), lambda _, g: (g, g))


@jax.custom_jvp
def norm(a: Any, b: Any) -> Any:
    return jnp.sqrt(a * a + b * b)


@norm.defjvp
def _of_norm(primals: Any, tangents: Any) -> Any:
    out = norm(*primals)
    (a, b), (da, db) = primals, tangents
    return out, (a * da + b * db) / jnp.where(out == 0, 1, out)


BY_THEMSELVES = {
    "backward": with_its_rule,
    "forward": norm,
    "stopped": lambda a, b: a + b + lax.stop_gradient(0 * a),
    "chosen": lambda a, b: lax.cond(a > b, lambda: a + b, lambda: b + a),
}


@pytest.mark.parametrize("kind", ["by_key", "by_segment"])
@pytest.mark.parametrize("name", BY_THEMSELVES)
def test_what_merges_with_its_own_derivative_is_asked_where_states_are_empty(name: str, kind: str) -> None:
    # A state of nothing has no slope, in whichever order it comes.
    monoid = tp.Monoid(0.0, BY_THEMSELVES[name], commutative=True)
    keyed = getattr(folded(monoid), kind)(None, 3)
    labels = np.array([0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2], np.int32)
    run = tp.plan(tp.trace(arrow := tp.fold(keyed, "t, t -> "), X, labels), tp.mesh(d=2), {"t": tp.striped("d")})
    np.testing.assert_allclose(run.compile()(X, labels), arrow(X, labels), rtol=1e-5)
    slopes = [
        jax.grad(lambda x, run=run: (run(x, labels) * np.arange(1, 4)).sum())(X) for run in (run.compile(), arrow)
    ]
    np.testing.assert_allclose(*slopes, rtol=1e-5)


def test_a_fold_of_few_cells_relies_on_what_single_cells_do() -> None:
    # Sums that are never negative merge in any order; the numbers that they are sums of do not.
    arrow = tp.fold(folded(RELU, lambda x: x), "t -> ")
    plan = tp.plan(tp.trace(arrow, X[:3]), tp.mesh(d=2), {"t": tp.striped("d")})
    with pytest.raises(tp.KernelError, match="is not associative"):
        plan.compile()(X[:3])


@pytest.mark.parametrize("name", TRUE)
def test_what_is_true_or_not_relied_on_runs(name: str) -> None:
    arrow, entry = TRUE[name]
    for found, expected in zip(jax.tree.leaves(planned(arrow, entry)), jax.tree.leaves(arrow(X)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_ring_relies_on_the_order_of_nothing() -> None:
    def kernel(q: Any, k: Any) -> Any:
        return jnp.where(jnp.any(k != 0), k[jnp.argmax(k != 0)], 0) + jnp.zeros_like(q)

    for monoid, refused in ((SAID, True), (tp.monoids.Max, False)):
        arrow = tp.Reduce(kernel if refused else lambda q, k: jnp.max(k) + jnp.zeros_like(q), "q, k -> q", monoid)
        plan = tp.plan(tp.trace(arrow, X[:8], X), tp.mesh(d=4), {"q": "d", "k": tp.ring("d")})
        if refused:
            with pytest.raises(tp.KernelError, match="merges in another order"):
                plan.compile()(X[:8], X)
        else:
            np.testing.assert_allclose(plan.compile()(X[:8], X), arrow(X[:8], X))


def test_the_error_says_what_is_false_where_and_what_to_do() -> None:
    with pytest.raises(tp.KernelError) as caught:
        planned(tp.Scan(HALF, SCANNED, over="t", name="smoothed"), "d")
    assert str(caught.value) == (
        "the monoid Monoid(half) of `smoothed` is not associative\n"
        "  signature t -> t\n"
        "  (a + b) + c is not a + (b + c), and plans merge in their own order\n"
        "  Write a `combine` for which both are equal (tp.laws draws states that tell), or do not cut `t`."
    )


def test_truths_are_added_as_without_a_plan() -> None:
    truths = X > 1
    arrow = tp.Reduce(lambda x: jnp.any(x, 0), "t -> ", tp.monoids.Sum)
    found = tp.plan(tp.trace(arrow, truths), tp.mesh(d=4), {"t": "d"}).compile()(truths)
    assert found.dtype == bool and bool(found) == bool(arrow(truths))


def of_parts(combine: Any) -> tp.Aggregator:
    """A sum and a maximum beside each other, merged by a function of somebody."""
    parts = tp.monoids.Sum & tp.monoids.Max
    return tp.Aggregator(lambda x: (x, x), dataclasses.replace(parts, combine=combine), lambda s: s)


def test_a_product_that_somebody_merges_by_himself_does_as_its_parts_do() -> None:
    def swapped(a: Any, b: Any) -> Any:
        return jnp.maximum(a[0], b[0]), a[1] + b[1]

    def theirs(a: Any, b: Any) -> Any:
        return a[0] + b[0], jnp.maximum(a[1], b[1])

    assert planned(tp.fold(of_parts(theirs), "t -> "), "d") == (X.sum(), X.max())
    with pytest.raises(tp.KernelError, match="does not merge as its parts or its frame do"):
        planned(tp.fold(of_parts(swapped), "t -> "), "d")


WHOLE = np.arange(12, dtype=np.int32) % 5
INSIDE: dict[str, tuple[tp.Monoid, Any]] = {
    "half of both": (HALF, X),
    "a sum that is never negative": (RELU, X - 1),
    "a choice": (tp.Monoid(0.0, lambda a, b: jnp.where(a > 0.5, a, a + b)), X),
    "an inverse that is none": (tp.Monoid(0, jnp.add, commutative=True, inverse=lambda a: a), WHOLE),
}


@pytest.mark.parametrize("entry", ["d", tp.chunks(3)], ids=["devices", "chunks"])
@pytest.mark.parametrize("name", INSIDE)
def test_what_merges_inside_of_windows_is_asked_too(name: str, entry: Any) -> None:
    monoid, x = INSIDE[name]
    # Windows of three would be merged alike in boxes of three.
    with pytest.raises(tp.KernelError, match="is not right for a box of any size"):
        planned(tp.window(folded(monoid, lambda cell: cell), 5, SCANNED, over="t"), entry, x)


def test_windows_of_what_is_associative_are_planned() -> None:
    for monoid, x in ((KEEPING, X), (tp.Monoid(0, jnp.add, commutative=True, inverse=jnp.negative), WHOLE)):
        arrow = tp.window(folded(monoid, lambda cell: cell), 3, SCANNED, over="t")
        np.testing.assert_allclose(planned(arrow, "d", x), arrow(x), rtol=1e-6)


def test_a_number_that_a_monoid_chooses_by_may_be_any() -> None:
    # Sums of a few numbers of one unit seldom exceed it on one side of the brackets alone.
    stops = tp.Monoid(0.0, lambda a, b: jnp.where(a > 10, a, a + b))
    with pytest.raises(tp.KernelError, match="is not associative"):
        planned(tp.scan(folded(stops, lambda cell: cell), SCANNED, over="t"), "d")
