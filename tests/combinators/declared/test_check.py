"""Kernels that do not do what their signature says, seen in their programs; and none that does is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import combinators as tp
from combinators.declared.check import Claim, check_declared
from combinators.errors import SignatureError
from combinators.index_space.signature import Signature


def _drawn(x: Any) -> Any:
    return x + jax.random.normal(jax.random.key(0), x.shape)


def _places(x: Any) -> Any:
    return jnp.broadcast_to(jnp.arange(len(x), dtype=x.dtype)[:, None], x.shape)


def _taken_out_where_axes_are_one(x: Any) -> Any:
    total = jnp.broadcast_to(x.sum(0), x.shape)
    return ((x + total).reshape(-1) - total.reshape(-1)).reshape(x.shape)


def _choosing(x: Any) -> Any:
    return lax.platform_dependent(x, default=lambda y: y - y.sum(0))


# Over `rows cols`, the first of which is mapped; each with what the error tells.
_FALSE: dict[str, tuple[Callable[..., Any], str]] = {
    "one of several": (lambda x: lax.switch(1, [lambda y: y, lambda y: y - y.mean(0)], x), "it uses reduce_sum"),
    "counted by arithmetic": (lambda x: x / jnp.sqrt(len(x)), "it reads how many cells of `rows` its block has"),
    "mean": (lambda x: x - x.mean(0), "it uses reduce_sum along `rows`"),
    "everything": (lambda x: x / jnp.linalg.norm(x), "it uses reduce_sum along `rows`"),
    "extremum": (lambda x: x / x.max(), "it uses reduce_max along `rows`"),
    "softmax": (lambda x: jax.nn.softmax(x, 0), "it uses reduce_max along `rows`"),
    "product": (lambda x: (x @ x.T) @ x, "it uses dot_general along `rows`"),
    "running": (lambda x: jnp.cumsum(x, 0), "it uses cumsum along `rows`"),
    "sorted": (lambda x: jnp.sort(x, 0), "it uses sort along `rows`"),
    "transformed": (lambda x: jnp.fft.fft(x, axis=0).real, "it uses fft along `rows`"),
    "numbered": (lambda x: x + jnp.arange(len(x), dtype=x.dtype)[:, None], "the position in the block"),
    "places alone": (_places, "its cells differ by their position along `rows`"),
    "constant": (lambda x: x + np.array(range(len(x)), np.float32)[:, None], "the position in the block"),
    "masked": (jnp.tril, "the position in the block"),
    "random": (_drawn, "the position in the block"),
    "turned": (lambda x: x[::-1], "other cells of `rows` than it takes, or in another order"),
    "moved": (lambda x: jnp.roll(x, 1, 0), "other cells of `rows` than it takes, or in another order"),
    "others one by one": (lambda x: jnp.stack([x[i] for i in (1, 0, *range(2, len(x)))]), "in another order"),
    "first one by one": (lambda x: jnp.stack([x[0] for _ in range(len(x))]), "one cell for all along `rows`"),
    "neighbours": (lambda x: jnp.stack([x[i] + x[i - 1] for i in range(len(x))]), "one cell for all along `rows`"),
    "mirrored": (lambda x: x + x[::-1], "of cells in two orders"),
    "first": (lambda x: x * x[:1], "of cells in two orders"),
    "second": (lambda x: x * x[1], "one cell for all"),
    "counted all": (lambda x: x / x.size, "it reads how many cells of `rows` its block has"),
    "counted": (lambda x: x / x.shape[0], "it reads how many cells of `rows` its block has"),
    "rooted": (lambda x: x * x.shape[0] ** -0.5, "it reads how many cells of `rows` its block has"),
    "inside": (jax.jit(lambda x: jax.checkpoint(lambda y: y - y.mean(0))(x)), "it uses reduce_sum along `rows`"),
    "chosen": (_choosing, "it uses reduce_sum along `rows`"),
    "differentiated": (jax.grad(lambda x: (x * x.sum(0)).sum()), "it uses reduce_sum along `rows`"),
}

_TRUE: dict[str, Callable[..., Any]] = {
    # Nothing is said of rows that have been merged with columns.
    "taken out": _taken_out_where_axes_are_one,
    "softmax": jax.nn.softmax,
    "layer norm": lambda x: (x - x.mean(1, keepdims=True)) / jnp.sqrt(x.var(1, keepdims=True) + 1e-5),
    "by rows": jax.vmap(lambda row: row - row.sum()),
    "every row": lambda x: lax.map(lambda row: row * row.sum(), x),
    "twice turned": lambda x: x[::-1][::-1],
    "there and back": lambda x: jnp.roll(jnp.roll(x, 1, 0), -1, 0),
    "taken apart": lambda x: jnp.concatenate([x[:2], x[2:]]),
    "flat": lambda x: x.reshape(-1).reshape(x.shape),
    "turned over": lambda x: (x.T * 2).T,
    "numbered columns": lambda x: x + jnp.arange(x.shape[1]),
    "masked columns": lambda x: jnp.where(jnp.arange(x.shape[1]) < 2, x, 0),
    "looked up": lambda x: jnp.take_along_axis(x, jnp.argsort(x, 1), 1),
    "place of the largest": lambda x: x[jnp.arange(len(x)), jnp.argmax(x, 1)][:, None] * x,
    "inner products": lambda x: jnp.einsum("ij,ij->i", x, x)[:, None] * x,
    "a number by chance": lambda x: x / 6.0,
    "counted columns": lambda x: x / x.shape[1],
    "uniform constant": lambda x: x * np.full((len(x), 1), 2, np.float32),
    "one by one": lambda x: jnp.stack([x[i] * x[i].sum() for i in range(len(x))]),
    "rows on rows": lambda x: jnp.vstack([x[i] / x[i].sum() for i in range(len(x))]),
    "number by number": lambda x: jnp.array([[x[i, j] for j in range(x.shape[1])] for i in range(len(x))]),
    "all numbers": lambda x: jnp.stack([x[i, j] for i in range(len(x)) for j in range(x.shape[1])]).reshape(x.shape),
    "held together": lambda x: lax.optimization_barrier((x, x.sum(), jnp.arange(len(x))[:, None]))[0],
    "switched off": lambda x: lax.cond(False, lambda y: y - y.mean(0), lambda y: y * 2, x),
    "not a number": lambda x: jnp.where(x > 0, x, np.full(x.shape, np.nan, np.float32)),
    "empty constant": lambda x: x + jnp.concatenate([np.zeros((0, 4), np.float32), jnp.ones((1, 4))]).sum(),
    "thrown away": lambda x: (x * 2, jax.jit(lambda y: (y * x.mean(), y.var()))(x))[0],
    "thrown away inside": lambda x: jax.jit(lambda y: (y * 2, y.mean()))(x)[0],
    "one of several": lambda x: lax.switch(1, [lambda y: y - y.mean(0), lambda y: y * 2, lambda y: y.mean() + y], x),
    "chosen by arithmetic": lambda x: lax.switch(
        jnp.minimum(3 - 2, 2), [lambda y: y / len(y), lambda y: y * 2, lambda y: y[::-1]], x
    ),
    "truths of its own": lambda x: x * jnp.maximum(jnp.bool_(True), jnp.bool_(False)).astype(x.dtype),
    "numbers of four bits": lambda x: x * (jnp.int4(3) + jnp.int4(2)).astype(x.dtype),
    "skipped": lambda x: lax.cond(x.sum() > 0, lambda y: y * 2, lambda y: y + y, x),
}


def _traced(kernel: Callable[..., Any], signature: str, *shapes: tuple[int, ...]) -> object:
    return tp.trace(tp.Map(kernel, signature), *(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes))


@pytest.mark.parametrize("name", _FALSE)
def test_false_signatures_are_refused(name: str) -> None:
    kernel, text = _FALSE[name]
    with pytest.raises(SignatureError, match="does not act on each cell of `rows` by itself") as caught:
        _traced(kernel, "rows [cols] -> rows [cols]", (6, 4))
    assert text in str(caught.value)
    assert "Write [rows]" in str(caught.value)
    # As it says itself, the same kernel may have all of them.
    _traced(kernel, "[rows] [cols] -> [rows] [cols]", (6, 4))


@pytest.mark.parametrize("name", _TRUE)
def test_true_signatures_are_taken(name: str) -> None:
    _traced(_TRUE[name], "rows [cols] -> rows [cols]", (6, 4))


@pytest.mark.parametrize("name", _FALSE)
def test_what_is_refused_does_break_the_law(name: str) -> None:
    kernel, x = _FALSE[name][0], jnp.asarray(np.random.default_rng(0).normal(size=(6, 4)), jnp.float32)
    apart = jnp.concatenate([kernel(x[:2]), kernel(x[2:])])
    assert not np.allclose(kernel(x), apart, rtol=1e-3)


@pytest.mark.parametrize(
    ("kernel", "signature", "shapes", "text"),
    [
        (lambda x: x, "a b -> b a", [(4, 4)], "it gives `a` along axis 0 of its result"),
        (lambda a, b: b[:, None] * a, "a, b -> a b", [(4,), (4,)], "it gives `b` along axis 0 of its result"),
        (lambda x: x - x.mean(), "... -> ...", [(4, 3)], "it uses reduce_sum along `...`"),
        (jnp.sin, "(3-a) b -> a b", [(4, 3)], "other cells of `a` than it takes, or in another order"),
        (lambda x, y: x + y, "(3-a), a -> a", [(4,), (4,)], "of cells in two orders along `a`"),
    ],
)
def test_axes_that_are_others(kernel: Any, signature: str, shapes: list[tuple[int, ...]], text: str) -> None:
    with pytest.raises(SignatureError, match="by itself") as caught:
        _traced(kernel, signature, *shapes)
    assert text in str(caught.value)


def test_states_are_held_against_what_they_carry() -> None:
    fold = tp.Reduce(lambda x: (x - x.mean(0)).sum(1), "rows cols -> rows", tp.monoids.Sum)
    with pytest.raises(SignatureError, match="it uses reduce_sum along `rows`"):
        tp.trace(fold, jax.ShapeDtypeStruct((6, 4), jnp.float32))


def _loss(given: Any, wanted: Any) -> Any:
    return jnp.mean((given - wanted) ** 2)


@pytest.mark.parametrize("monoid", [tp.monoids.Sum, tp.monoids.Max])
def test_means_are_no_parts(monoid: tp.Monoid) -> None:
    given = [jax.ShapeDtypeStruct((8,), jnp.float32)] * 2
    with pytest.raises(SignatureError, match="divides by how many cells of `batch` its block has") as caught:
        tp.trace(tp.Reduce(_loss, "batch, batch -> ", monoid), *given)
    assert "aggregators.Mean" in str(caught.value)
    tp.trace(tp.Reduce(lambda a, b: jnp.sum((a - b) ** 2) / 8, "batch, batch -> ", monoid), *given)
    tp.trace(tp.Reduce(lambda a, b: jnp.sum(a * b), "batch, batch -> ", monoid), *given)
    tp.trace(tp.Reduce(lambda a, b: jnp.float32(a.shape[0]) + 0 * b[0], "batch, batch -> ", monoid), *given)


@pytest.mark.parametrize(
    "scale",
    [
        lambda d: 1 / jnp.sqrt(d),
        lambda d: 1 / np.sqrt(d),
        lambda d: lax.rsqrt(jnp.float32(d)),
        lambda d: jax.jit(lambda: 1 / (jnp.float32(d) * 2))(),
    ],
)
def test_scores_that_are_scaled_by_a_cut_dimension_are_no_parts(scale: Any) -> None:
    given = [jax.ShapeDtypeStruct((rows, 7), jnp.float32) for rows in (5, 6)]
    scores = tp.Reduce(lambda q, k: q @ k.T * scale(q.shape[1]), "i d, j d -> i j", tp.monoids.Sum)
    with pytest.raises(SignatureError, match="divides by how many cells of `d` its block has"):
        tp.trace(scores, *given)
    _traced(lambda q, k: q @ k.T * scale(q.shape[1]), "i [d], j [d] -> i j", (5, 7), (6, 7))
    tp.trace(tp.Reduce(lambda q, k: q @ k.T * scale(7), "i d, j d -> i j", tp.monoids.Sum), *given)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize(
    "scale",
    [
        lambda x: 1 / len(x),
        lambda x: 1 / jnp.sqrt(len(x)),
        lambda x: 1 / jnp.asarray(len(x), x.dtype),
        lambda x: lax.rsqrt(jnp.asarray(len(x) - 1, x.dtype)),
    ],
)
def test_numbers_of_cells_are_seen_in_every_float(scale: Any, dtype: Any) -> None:
    rows = jax.ShapeDtypeStruct((7, 4), dtype)
    with pytest.raises(SignatureError, match="how many cells of `rows` its block has"):
        tp.trace(tp.Map(lambda x: x * scale(x), "rows cols -> rows cols"), rows)
    with pytest.raises(SignatureError, match="divides by how many cells of `rows` its block has"):
        tp.trace(tp.Reduce(lambda x: x.sum(0) * scale(x), "rows cols -> cols", tp.monoids.Sum), rows)


@pytest.mark.parametrize("rows", [6, 2000, 200_000])
def test_counts_of_many_cells_are_no_means(rows: int) -> None:
    given = jax.ShapeDtypeStruct((rows,), jnp.float32), jax.ShapeDtypeStruct((), jnp.float32)
    likely = tp.Reduce(lambda x, s: jnp.sum(x**2) / s + x.shape[0] * jnp.log(s), "batch, -> ", tp.monoids.Sum)
    tp.trace(likely, *given)
    with pytest.raises(SignatureError, match="divides by how many"):
        tp.trace(tp.Reduce(lambda x, s: jnp.sum(x) / x.shape[0] * s, "batch, -> ", tp.monoids.Sum), *given)


@pytest.mark.parametrize(
    "kernel",
    [
        lambda x, s: jnp.sum(x**2) + x.shape[0] * jnp.log(2 * jnp.pi * jnp.float32(x.shape[0]) / x.shape[0]) * s,
        lambda x, s: jnp.sum(x**2) / s**2 + x.shape[0] * jnp.log(s),
        lambda x, s: jnp.sum(x**2) + x.shape[0] / s,
        lambda x, s: jnp.sum(x) * s + 0.5 * x.shape[0] * s,
    ],
)
def test_counts_are_parts(kernel: Any) -> None:
    """Likelihoods: what is multiplied by the number of cells adds up."""
    fold, given = (
        tp.Reduce(kernel, "batch, -> ", tp.monoids.Sum),
        [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((8,), ())],
    )
    tp.trace(fold, *given)
    x, s = jnp.arange(8.0), jnp.float32(2)
    np.testing.assert_allclose(kernel(x[:3], s) + kernel(x[3:], s), kernel(x, s), rtol=1e-6)
    assert kernel(x, s) != 0


def test_a_claim_is_held_against_a_program() -> None:
    """As `shape` asks, without an operation."""
    claim = Claim("turned", Signature.parse("x -> x"), {"x": 3})
    program = jax.make_jaxpr(lambda x: x[::-1])(jnp.zeros(3))
    with pytest.raises(SignatureError, match="other cells of `x`"):
        check_declared(claim, program, [("x",)], lambda sizes: None)


def test_cells_of_two_dimensions_come_together() -> None:
    _traced(_TRUE["all numbers"], "rows cols -> rows cols", (6, 4))
    _traced(_TRUE["number by number"], "rows cols -> rows cols", (6, 4))
    _traced(_TRUE["rows on rows"], "rows [cols] -> rows [cols]", (19, 4))  # JAX puts 16 together at a time


def test_one_cell_cannot_tell() -> None:
    _traced(lambda x: x - x.mean(0), "rows [cols] -> rows [cols]", (1, 4))
    _traced(lambda x: x - x.mean(0), "rows [cols] -> rows [cols]", (0, 4))
    _traced(
        lambda x, e: x + (e.sum(0) if e.size else x.mean(0)),
        "rows [cols], [none] [cols] -> rows [cols]",
        (6, 4),
        (0, 4),
    )


def test_what_is_read_backwards_is_turned_by_the_kernel() -> None:
    _traced(lambda x: x[::-1].T, "(3-a) b -> b a", (4, 3))
    _traced(lambda x, y: (x * x)[::-1] + y, "(3-a), a -> a", (4,), (4,))
    with pytest.raises(SignatureError, match=r"turn what is read backwards along `a`, as `x\[::-1\]` does"):
        _traced(jnp.sin, "(3-a) -> a", (4,))


def test_the_remedy_is_one_for_what_the_kernel_does() -> None:
    for kernel, text in ((jnp.tril, "as an operand `@rows`"), (lambda x: x / len(x), "by functools.partial")):
        with pytest.raises(SignatureError) as caught:
            _traced(kernel, "rows [cols] -> rows [cols]", (6, 4))
        assert text in str(caught.value)
