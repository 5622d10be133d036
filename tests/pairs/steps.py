"""The steps that programs are drawn from: every combinator of the library, on operands of any names and sizes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp

import tapestry_jax as tp
from combinators.index_space.boundary import BOUNDARIES
from tests.pairs import kernels

FRESH = "efghijklmnop"
Sum, agg = tp.monoids.Sum, tp.aggregators


class Pool:
    """The values that a step may take: what the program was given, and what the steps before made."""

    def __init__(self, inputs: dict[str, Any], smooth: Callable[[Any], Any] = jnp.tanh) -> None:
        self.smooth = smooth
        self.labels = inputs.get("labels")
        self.layers = inputs.get("layers")
        self.w = inputs.get("w")
        self.key = inputs.get("key")
        self.values = [inputs[name] for name in ("y", "x") if name in inputs]
        self.used: set[str] = set()

    def any(self, rng: Random, rank: int = 0) -> Any:
        """A value of named axes and at least `rank` of them; the last one most often."""
        fits = [value for value in self.carrying() if value.ndim >= rank]
        return fits[-1] if rng.random() < 0.6 else rng.choice(fits)

    def carrying(self, *names: str) -> list[Any]:
        """The values that have these axes, and no axis without a name: a signature can write all of theirs."""
        return [value for value in self.values if None not in value.names and set(names) <= set(value.names)]

    def fresh(self) -> str:
        """A name that no value carries."""
        carried = {name for value in self.values for name in value.names}
        name = next(name for name in FRESH if name not in carried | self.used)
        self.used.add(name)
        return name

    def add(self, made: Any) -> None:
        """Take what a step made: its floating leaves."""
        leaves = list(jax.tree.leaves(made, is_leaf=lambda leaf: hasattr(leaf, "ref")))
        self.values += [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]

    def outputs(self, rng: Random) -> Any:
        """What the program returns: the last value, sometimes others, sometimes one number."""
        last = self.values[-1]
        kind = rng.random()
        if kind < 0.2 and last.names and None not in last.names:
            return tp.fold(agg.Sum(), f"{axes(last)} -> ")(last)
        return [last, rng.choice(self.values)] if kind < 0.5 else last


def axes(value: Any) -> str:
    """The axes of a value, as a signature writes them."""
    return " ".join(value.names)


def without(value: Any, *names: str) -> str:
    return " ".join(name for name in value.names if name not in names)


def elementwise(rng: Random, pool: Pool) -> Any:
    kernel = rng.choice((pool.smooth, jnp.sin, kernels.bump, kernels.shrink, jnp.square))
    return tp.Map(kernel)(pool.any(rng))


def arithmetic(rng: Random, pool: Pool) -> Any:
    x = pool.any(rng)
    others = [value for value in pool.values if set(value.names) <= set(x.names)]
    y = rng.choice(others)
    kind = rng.randrange(4)
    return [x + y, x - y * 0.5, x * y, x / (1.5 + y * y)][kind]


AGGREGATORS: dict[str, Callable[[], Any]] = {
    "sum": agg.Sum,
    "mean": agg.Mean,
    "max": agg.Max,
    "min": agg.Min,
    "logsumexp": agg.LogSumExp,
    "prod": agg.Prod,
    "moments": agg.Moments,
    "minmax": agg.MinMax,
    "compensated": agg.CompensatedSum,
    "first": agg.First,
    "last": agg.Last,
}


def folded(rng: Random, pool: Pool) -> Any:
    x = pool.any(rng, 1)
    gone = rng.sample(x.names, rng.randint(1, x.ndim))
    kept = without(x, *gone).split()
    rng.shuffle(kept)
    made = tp.fold(AGGREGATORS[rng.choice(list(AGGREGATORS))](), f"{axes(x)} -> {' '.join(kept)}")(x)
    return made


def centred(rng: Random, pool: Pool) -> Any:
    x = pool.any(rng, 1)
    gone = rng.sample(x.names, rng.randint(1, x.ndim))
    name = rng.choice(("mean", "logsumexp", "max", "sum"))
    return x - tp.fold(AGGREGATORS[name](), f"{axes(x)} -> {without(x, *gone)}")(x)


def indexed_fold(rng: Random, pool: Pool) -> Any:
    x = pool.any(rng, 1)
    gone = rng.choice(x.names)
    best = rng.choice((agg.ArgMax(), agg.TopK(2), agg.ArgMin()))
    return tp.fold(best, f"{axes(x)}, @{gone} -> {without(x, gone)}")(x)


def by_key(rng: Random, pool: Pool) -> Any:
    if pool.labels is None:
        raise LookupError
    [row] = pool.labels.names
    x = rng.choice(pool.carrying(row))
    inner = AGGREGATORS[rng.choice(("sum", "max", "mean", "logsumexp", "moments", "first"))]()
    if rng.random() < 0.3:
        over = rng.choice((agg.Sum(), agg.Max())).by_run()
        return tp.scan(over, f"{axes(x)}, {row} -> {axes(x)}", over=row)(x, pool.labels)
    return tp.fold(inner.by_key(None, 3), f"{axes(x)}, {row} -> {without(x, row)}")(x, pool.labels)


def opaque_fold(rng: Random, pool: Pool) -> Any:
    x = pool.any(rng, 1)
    kind = rng.randrange(3)
    if kind == 0:
        over = rng.choice(x.names)
        carrier = f"{without(x, over)}, {without(x, over)}"
        kernel = kernels.Affine(x.names.index(over))
        return tp.Reduce(
            kernel, f"{axes(x)} -> {without(x, over)}", kernels.ORDERED, carrier=carrier, present=kernels.second
        )(x)
    gone = rng.sample(x.names, rng.randint(1, x.ndim))
    places = tuple(sorted(x.names.index(name) for name in gone))
    kernel, monoid, pad = (
        (kernels.Summed(places), Sum, 0.0) if kind == 1 else (kernels.Largest(places), tp.monoids.Max, -jnp.inf)
    )
    declared = (float(pad),) if rng.random() < 0.5 else None
    return tp.Reduce(kernel, f"{axes(x)} -> {without(x, *gone)}", monoid, pad=declared)(x)


def scanned(rng: Random, pool: Pool) -> Any:
    x = pool.any(rng, 1)
    over = rng.choice(x.names)
    how = {"reverse": rng.random() < 0.4, "exclusive": rng.random() < 0.3, "final": rng.random() < 0.25}
    signature = f"{axes(x)} -> {axes(x)}"
    kind = rng.randrange(4)
    if kind == 0:
        name = rng.choice(("sum", "max", "mean", "logsumexp", "prod"))
        if name in ("max", "mean", "logsumexp"):
            # The identity presents as infinity, or as no number.
            how["exclusive"] = False
        made = tp.scan(AGGREGATORS[name](), signature, over=over, **how)(x)
    elif kind == 1:
        y = tp.Map(jnp.cos)(x)
        pair = tp.Scan(tp.monoids.AffineRecurrence, f"{axes(x)}, {axes(x)} -> {axes(x)}, {axes(x)}", over=over, **how)
        made = pair(y, x)
    elif kind == 2:
        made = tp.Scan(
            kernels.ORDERED,
            signature,
            over=over,
            kernel=kernels.affine_steps,
            carrier=f"{axes(x)}, {axes(x)}",
            present=kernels.second,
            **how,
        )(x)
    else:
        if rng.random() < 0.5:
            how["init"] = 0.25
        made = tp.Scan(Sum, signature, over=over, **how)(x)
    return made


def windowed(rng: Random, pool: Pool) -> Any:
    x = pool.any(rng, 1)
    over = rng.choice(x.names)
    boundary = rng.choice(BOUNDARIES)
    stride = rng.choice((1, 1, 1, 2)) if boundary == "valid" else 1
    dilation = rng.choice((1, 1, 2))
    offset = 0 if boundary == "valid" else dilation
    place = f"({stride}*{over}+{dilation}*[k]{f'-{offset}' if offset else ''})"
    operand = " ".join(place if name == over else name for name in x.names)
    kernel = kernels.Smooth(x.names.index(over), stride, dilation)
    return tp.Map(kernel, f"{operand} -> {axes(x)}", sizes={"k": 3}, boundary=boundary)(x)


def sliding(rng: Random, pool: Pool) -> Any:
    x = pool.any(rng, 1)
    over = rng.choice(x.names)
    name = rng.choice(("sum", "max", "mean", "last"))
    size = rng.choice((1, 2, 3, 5))
    return tp.window(AGGREGATORS[name](), size, f"{axes(x)} -> {axes(x)}", over=over, partial=rng.random() < 0.7)(x)


def correlated(rng: Random, pool: Pool) -> Any:
    x = pool.any(rng, 1)
    filters = rng.choice([value for value in pool.carrying() if value.ndim == 1])
    taps = filters.rename(**{filters.names[0]: pool.fresh()})
    first, rest = x.names[0], " ".join(x.names[1:])
    signature = f"({first}+k) {rest}, k -> {first} {rest}"
    return tp.Reduce(kernels.correlate, signature, Sum)(x, taps)


def whole(rng: Random, pool: Pool) -> Any:
    x = pool.any(rng, 1)
    over = rng.choice(x.names)
    inside = " ".join(f"[{name}]" if name == over else name for name in x.names)
    place = x.names.index(over)
    what = rng.choice(("softmax", "reversed", "unit", "turned", "sorted"))
    return tp.Map(kernels.Whole(what, place), f"{inside} -> {inside}")(x)


def product(rng: Random, pool: Pool) -> Any:
    if pool.w is not None and rng.random() < 0.6:
        row = pool.w.names[0]
        x = rng.choice([value for value in pool.carrying(row) if "d" not in value.names])
        kept = without(x, row)
        return tp.einsum(f"{axes(x)}, {row} d -> {kept} d")(x, pool.w)
    x, y = pool.any(rng, 1), pool.any(rng, 1)
    shared = [name for name in x.names if name in y.names]
    gone = rng.choice(shared)
    kept = [name for name in dict.fromkeys((*x.names, *y.names)) if name != gone]
    rng.shuffle(kept)
    return tp.einsum(f"{axes(x)}, {axes(y)} -> {' '.join(kept)}")(x, y)


def residual(rng: Random, pool: Pool) -> Any:
    if pool.w is None:
        raise LookupError
    row = pool.w.names[0]
    x = rng.choice([value for value in pool.carrying(row) if "d" not in value.names])
    kept = without(x, row)
    hidden = tp.Map(pool.smooth)(tp.einsum(f"{axes(x)}, {row} d -> {kept} d")(x, pool.w))
    return x + tp.einsum(f"{kept} d, {row} d -> {axes(x)}")(hidden, pool.w)


def attention(rng: Random, pool: Pool) -> Any:
    x = pool.any(rng, 2)
    over = rng.choice(x.names[:-1])
    keys = pool.fresh()
    other = x.rename(**{over: keys})
    causal = rng.random() < 0.5
    return tp.attention(x, tp.Map(jnp.sin)(other), other, over=keys, causal=causal)


def rearranged(rng: Random, pool: Pool) -> Any:
    x = pool.any(rng, 1)
    kind = rng.randrange(3)
    if kind == 0:
        order = rng.sample(x.names, x.ndim)
        return tp.rearrange(f"{axes(x)} -> {' '.join(order)}")(x)
    if kind == 1 and x.ndim > 1:
        at = rng.randrange(x.ndim - 1)
        parts = [*x.names[:at], f"({x.names[at]} {x.names[at + 1]})", *x.names[at + 2 :]]
        merged = tp.rearrange(f"{axes(x)} -> {' '.join(parts)}")(x)
        if rng.random() < 0.5:
            return merged
        left, right = pool.fresh(), pool.fresh()
        split = [*x.names[:at], f"({left} {right})", *x.names[at + 2 :]]
        apart = " ".join(part.strip("()") for part in split)
        merged = tp.Map(pool.smooth)(merged)
        return tp.rearrange(f"{' '.join(split)} -> {apart}", **{right: x.shape[at + 1]})(merged)
    at = rng.randrange(x.ndim)
    inner = rng.choice([n for n in range(1, x.shape[at] + 1) if x.shape[at] % n == 0] or [1])
    left, right = pool.fresh(), pool.fresh()
    split = " ".join(f"({left} {right})" if place == at else name for place, name in enumerate(x.names))
    return tp.rearrange(f"{split} -> {split.replace('(', '').replace(')', '')}", **{right: inner})(x)


def gathered(rng: Random, pool: Pool) -> Any:
    if pool.labels is None:
        raise LookupError
    x = pool.any(rng, 1)
    table = x.rename(**{x.names[0]: pool.fresh()})
    if pool.labels.names[0] in table.names or table.shape[0] == 0:
        raise LookupError
    rest = " ".join(table.names[1:])
    return tp.Map(kernels.choose, f"[v] {rest}, row -> row {rest}")(table, pool.labels)


def placed(rng: Random, pool: Pool) -> Any:
    x = pool.any(rng, 1)
    over = rng.choice(x.names)
    return tp.Map(kernels.At(x.names.index(over)), f"{axes(x)}, @{over} -> {axes(x)}")(x)


def renamed(rng: Random, pool: Pool) -> Any:
    x = pool.any(rng, 1)
    name = rng.choice(x.names)
    other = x.rename(**{name: pool.fresh()})
    if x.ndim > 2 or rng.random() < 0.4:
        return tp.Map(jnp.sin)(other)
    y = pool.any(rng)
    kept = list(dict.fromkeys((*other.names, *y.names)))
    return tp.einsum(f"{axes(other)}, {axes(y)} -> {' '.join(kept)}")(other, y)


def pair(rng: Random, pool: Pool) -> Any:
    x = pool.any(rng)
    return tp.Map(kernels.two, f"{axes(x)} -> {axes(x)}, {axes(x)}")(x)


def unit_rows(rng: Random, pool: Pool) -> Any:
    x = pool.any(rng, 2)
    over = rng.choice(x.names)
    inside = " ".join(f"[{name}]" if name == over else name for name in x.names)
    return tp.Map(kernels.Row(x.names.index(over)), f"{inside} -> {inside}")(x)


# Steps that keep the type of their first operand, and so can be repeated.


def _relaxed(x: Any, over: str, boundary: str) -> Any:
    operand = " ".join(f"({name}+[k]-1)" if name == over else name for name in x.names)
    return tp.Map(
        kernels.Smooth(x.names.index(over), 1, 1), f"{operand} -> {axes(x)}", sizes={"k": 3}, boundary=boundary
    )(x)


def _layer(rng: Random, like: Any, pool: Pool, depth: int) -> Callable[[Any], Any]:
    """A function of a value that gives one of the same type."""
    kind = rng.randrange(8)
    over = rng.choice(like.names) if like.names else None
    if kind == 0 or over is None:
        return lambda x: tp.Map(jnp.sin)(x)
    if kind in (1, 2):
        boundary = rng.choice(BOUNDARIES[1:])
        return lambda x: _relaxed(x, over, boundary)
    if kind == 3:
        return lambda x: x - tp.fold(agg.Mean(), f"{axes(x)} -> {without(x, over)}")(x)
    if kind == 4:
        reverse = rng.random() < 0.5
        return lambda x: tp.Scan(Sum, f"{axes(x)} -> {axes(x)}", over=over, reverse=reverse)(x) * 0.5
    if kind == 5 and depth < 2:
        inner, count = _layer(rng, like, pool, depth + 1), rng.randint(0, 3)
        return lambda x: tp.iterate(inner, count)(x)
    if kind == 6 and pool.w is not None and pool.w.names[0] in like.names and "d" not in like.names:
        row, w = pool.w.names[0], pool.w

        def mixed(x: Any) -> Any:
            kept = without(x, row)
            hidden = tp.Map(pool.smooth)(tp.einsum(f"{axes(x)}, {row} d -> {kept} d")(x, w))
            return x + tp.einsum(f"{kept} d, {row} d -> {axes(x)}")(hidden, w) * 0.5

        return mixed
    inside = " ".join(f"[{name}]" if name == over else name for name in like.names)
    place = like.names.index(over)
    return lambda x: tp.Map(kernels.Whole("softmax", place), f"{inside} -> {inside}")(x)


def repeated(rng: Random, pool: Pool) -> Any:
    x = pool.any(rng)
    layers = [_layer(rng, x, pool, 0) for _ in range(rng.randint(1, 2))]

    def step(value: Any) -> Any:
        for layer in layers:
            value = layer(value)
        return value

    return tp.iterate(step, rng.randint(0, 5))(x)


def relaxed(rng: Random, pool: Pool) -> Any:
    """Windows in a loop, which halos are for."""
    x = pool.any(rng, 1)
    over, boundary = rng.choice(x.names), rng.choice(BOUNDARIES[1:])
    smooth = rng.choice((None, pool.smooth, jnp.sin))
    other = rng.choice(x.names)

    def step(value: Any) -> Any:
        value = _relaxed(value, over, boundary)
        value = value if smooth is None else tp.Map(smooth)(value)
        return _relaxed(value, other, boundary) if other != over else value + x * 0.25

    return tp.iterate(step, rng.randint(1, 6))(x)


def stacked(rng: Random, pool: Pool) -> Any:
    if pool.layers is None:
        raise LookupError
    extra = pool.layers.names[1:]
    x = rng.choice(pool.carrying(*extra))
    layer = _layer(rng, x, pool, 0)

    def step(value: Any, scale: Any) -> Any:
        return layer(value) * scale if rng_first else layer(value * scale)

    rng_first = rng.random() < 0.5
    return tp.stack(step, pool.layers.shape[0])(x, pool.layers)


def fed_back(rng: Random, pool: Pool) -> Any:
    x = pool.any(rng, 1)
    over = rng.choice(x.names)
    state = tp.fold(agg.Mean(), f"{axes(x)} -> {without(x, over)}")(x)

    def step(piece: Any, carry: Any) -> Any:
        after = tp.Map(pool.smooth)(piece + carry * 0.5)
        return after * piece, after

    # The operator notation takes a program; its names are those of its operands.
    names = without(x, over)
    cell = tp.program(f"{names}, {names} -> {names}, {names}")(step)
    return cell.feedback(over)(x, state)


# Steps of the second edition.


def randomly(rng: Random, pool: Pool) -> Any:
    """Random numbers, the same bits under every plan."""
    if pool.key is None:
        raise LookupError
    x = pool.any(rng)
    key = tp.random.fold_in(pool.key, rng.randrange(5)) if rng.random() < 0.5 else pool.key
    kind = rng.randrange(3)
    if kind == 0:
        return tp.Map(kernels.where)(tp.random.bernoulli(key, 0.7, like=x), x)
    drawn = (tp.random.uniform if kind == 1 else tp.random.normal)(key, like=x, dtype=x.dtype)
    return x + drawn if rng.random() < 0.6 else drawn


def plane(rng: Random, pool: Pool) -> Any:
    """Windows over two axes, each with a boundary of its own."""
    x = pool.any(rng, 2)
    over = rng.sample(x.names, 2)
    modes = [rng.choice(BOUNDARIES) for _ in over]
    offsets = {name: 0 if mode == "valid" else 1 for name, mode in zip(over, modes, strict=True)}
    parts = [f"({name}+[k{name}]-{offsets[name]})" if name in over else name for name in x.names]
    kernel = kernels.Plane(tuple(sorted(x.names.index(name) for name in over)))
    # Boundaries come in the order of the axes.
    listed = tuple(mode for _, mode in sorted(zip(map(x.names.index, over), modes, strict=True)))
    sizes = {f"k{name}": 3 for name in over}
    return tp.Map(kernel, f"{' '.join(parts)} -> {axes(x)}", sizes=sizes, boundary=listed)(x)


def strided(rng: Random, pool: Pool) -> Any:
    """A correlation whose taps are folded, with strides and dilations."""
    x = pool.any(rng, 1)
    filters = rng.choice([value for value in pool.carrying() if value.ndim == 1])
    taps = filters.rename(**{filters.names[0]: pool.fresh()})
    over, stride, dilation = rng.choice(x.names), rng.choice((1, 2, 3)), rng.choice((1, 2, 3))
    place = f"({stride}*{over}+{dilation}*k)"
    operand = " ".join(place if name == over else name for name in x.names)
    kernel = kernels.Correlate(x.names.index(over), stride, dilation)
    return tp.Reduce(kernel, f"{operand}, k -> {axes(x)}", Sum)(x, taps)


def backwards(rng: Random, pool: Pool) -> Any:
    """An axis that is read from its end."""
    x = pool.any(rng, 1)
    over = rng.choice([name for name, size in zip(x.names, x.shape, strict=True) if size])
    last = x.shape[x.names.index(over)] - 1
    operand = " ".join(f"({last}-{name})" if name == over else name for name in x.names)
    return tp.Map(kernels.Whole("reversed", x.names.index(over)), f"{operand} -> {axes(x)}")(x)


def seen(rng: Random, pool: Pool) -> Any:
    """A value with a name, and with its coordinates."""
    x = pool.any(rng, 1)
    at = tp.index(rng.choice(x.names), like=x)
    return tp.named(pool.fresh(), tp.Map(kernels.weighted)(x, at))


STEPS: dict[str, tuple[int, Callable[[Random, Pool], Any]]] = {
    "elementwise": (3, elementwise),
    "arithmetic": (4, arithmetic),
    "fold": (4, folded),
    "centred": (3, centred),
    "indexed fold": (1, indexed_fold),
    "by key": (4, by_key),
    "opaque fold": (3, opaque_fold),
    "scan": (6, scanned),
    "window": (4, windowed),
    "sliding": (2, sliding),
    "correlate": (2, correlated),
    "whole": (3, whole),
    "product": (4, product),
    "residual": (2, residual),
    "attention": (3, attention),
    "rearrange": (3, rearranged),
    "gather": (3, gathered),
    "placed": (2, placed),
    "rename": (2, renamed),
    "pair": (1, pair),
    "unit rows": (1, unit_rows),
    "iterate": (3, repeated),
    "relax": (3, relaxed),
    "stack": (5, stacked),
    "feedback": (2, fed_back),
}

NEWER: dict[str, tuple[int, Callable[[Random, Pool], Any]]] = {
    "random": (12, randomly),
    "plane": (4, plane),
    "strided": (3, strided),
    "backwards": (3, backwards),
    "seen": (2, seen),
}
"""Steps of the second edition."""
