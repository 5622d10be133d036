"""Mistakes that people make, planted in a piece: each gives a piece like it that should break a law."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, final

import jax
import jax.numpy as jnp

from combinators.aggregation.aggregator import Aggregator
from combinators.aggregation.functions import LiftEach
from combinators.merging.monoid import Monoid
from laws.subject import Subject
from laws.subjects.aggregator import AggregatorSubject
from laws.subjects.carrier import MonoidSubject
from laws.subjects.leaf import LeafSubject


@final
@dataclass(frozen=True)
class Mutation:
    """A planted mistake.

    Attributes:
      name: what was done, such as `"drop a term of [0]"`.
      before: the subject as it is.
      after: the subject with the mistake.
    """

    name: str
    before: Subject
    after: Subject


def mutations(subject: Subject) -> Iterator[Mutation]:
    """Plant mistakes one at a time: swapped arguments, a wrong identity, a dropped term, a forgotten mask or halo, ...

    Args:
      subject: a monoid, an aggregator or an operation; others have no mutations.
    """
    if isinstance(subject, MonoidSubject):
        for name, monoid in _of_monoid(subject.monoid, subject.carrier.cell_type):
            yield Mutation(name, subject, MonoidSubject(monoid, subject.carrier, subject.name))
    elif isinstance(subject, AggregatorSubject):
        cell = jax.eval_shape(subject.aggregator.lift, *subject.elements)
        for name, aggregator in _of_aggregator(subject.aggregator, cell):
            yield Mutation(name, subject, AggregatorSubject(aggregator, subject.carrier, subject.name))
    elif isinstance(subject, LeafSubject):
        yield from _of_leaf(subject)


def _of_monoid(monoid: Monoid, cell: Any) -> Iterator[tuple[str, Monoid]]:
    """Mistakes of `identity`, `combine` and what is declared; a product is taken as a whole."""
    plain = dataclasses.replace(monoid, parts=(), keys=None)

    def combined(change: Callable[[Any, Any, Any], Any]) -> Monoid:
        return dataclasses.replace(plain, combine=lambda a, b: change(a, b, monoid.merge(a, b)))

    yield "swap the arguments", dataclasses.replace(plain, combine=lambda a, b: monoid.merge(b, a))
    yield "wrong identity", dataclasses.replace(plain, identity=lambda kind: _moved(monoid.identity_for(kind)))
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(cell)]
    for number, path in enumerate(paths):
        where = f" of {path}" if path else ""
        yield f"drop a term{where}", combined(lambda a, b, both, n=number: _leaf(both, n, lambda i: _at(a, i)))
        if jnp.issubdtype(jax.tree.leaves(cell)[number].dtype, jnp.inexact):
            yield (
                f"mean of means{where}",
                combined(lambda a, b, both, n=number: _leaf(both, n, lambda i: (_at(a, i) + _at(b, i)) / 2)),
            )
    for flag in ("commutative", "idempotent"):
        if not getattr(monoid, flag):
            yield f"declare {flag}", dataclasses.replace(plain, **{flag: True})
    if monoid.inverse is not None:
        yield "wrong inverse", dataclasses.replace(plain, inverse=lambda state: state)
    if monoid.frame is not None:
        at = monoid.frame.restore
        frame = dataclasses.replace(monoid.frame, restore=lambda f, total: at(jax.tree.map(_one_off, f), total))
        yield "forget the frame", dataclasses.replace(plain, frame=frame)


def _of_aggregator(aggregator: Aggregator, cell: Any) -> Iterator[tuple[str, Aggregator]]:
    """Mistakes of `lift_many` and `present`, and those of the monoid."""
    many, lift = aggregator.lift_many, aggregator.lift

    def lifting(change: Callable[..., Any]) -> Aggregator:
        return dataclasses.replace(aggregator, lift_many=lambda *xs: many(*(change(x) for x in xs)))

    yield "drop the last element", lifting(lambda x: x[:-1])
    yield "count the first element twice", lifting(lambda x: jnp.concatenate([x[:1], jnp.asarray(x)]))
    yield "missing mask: padding of zeros is counted", lifting(_padded)
    yield "lift every element twice", dataclasses.replace(aggregator, lift=lambda *x: _doubled(lift(*x)))
    for name, monoid in _of_monoid(aggregator.monoid, cell):
        # Where the library folds element by element, it does so with the mistake as well.
        lifts = LiftEach(lift, monoid) if isinstance(many, LiftEach) else many
        yield name, dataclasses.replace(aggregator, monoid=monoid, lift_many=lifts)


def _of_leaf(s: LeafSubject) -> Iterator[Mutation]:
    """Mistakes of the projection, of the halo and of the fold, seen from the kernel; and of the monoid."""
    operation, signature = s.shaped.operation, s.shaped.signature
    kernel = operation.kernel

    def planted(name: str, **changes: Any) -> Mutation:
        shaped = dataclasses.replace(s.shaped, operation=dataclasses.replace(operation, **changes))
        return Mutation(name, s, LeafSubject(shaped, s.operands, s.name, s.drawn.values))

    def reading(number: int, change: Callable[[Any], Any]) -> Callable[..., Any]:
        return lambda *blocks: kernel(*(change(x) if i == number else x for i, x in enumerate(blocks)))

    for number, operand in enumerate(signature.operands):
        for at, axis in enumerate(operand.axes):
            where = f" on axis {at} of operand {number}"
            if any(name in signature.map_dims for name in axis.names):
                yield planted(
                    f"off-by-one projection{where}", kernel=reading(number, lambda x, a=at: jnp.roll(x, 1, a))
                )
            if axis.is_window:
                yield planted(f"forgotten halo{where}", kernel=reading(number, lambda x, a=at: _without_halo(x, a)))
            if axis.name in signature.fold_dims:
                yield planted(f"drop a term{where}", kernel=reading(number, lambda x, a=at: _zeroed(x, a)))
                yield planted(f"mean of means{where}", kernel=_averaged(kernel, number, at))
    if operation.monoid is not None:
        cell = jax.tree.unflatten(
            s.shaped.state_tree, [jax.ShapeDtypeStruct((), leaf.dtype) for leaf in s.shaped.state]
        )
        for name, monoid in _of_monoid(operation.monoid, cell):
            # What is declared is no matter of the operation; the monoid has laws of its own for it.
            if monoid.combine is not operation.monoid.combine or name == "wrong identity":
                yield planted(name, monoid=monoid)


def _averaged(kernel: Callable[..., Any], number: int, at: int) -> Callable[..., Any]:
    """Divide by the number of cells that were read, as a mean of each piece does."""
    return lambda *blocks: jax.tree.map(
        lambda leaf: leaf / blocks[number].shape[at] if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf,
        kernel(*blocks),
    )


def _zeroed(x: Any, axis: int) -> Any:
    last = jnp.arange(x.shape[axis]) == x.shape[axis] - 1
    return jnp.where(last.reshape([-1 if i == axis else 1 for i in range(x.ndim)]), jnp.zeros((), x.dtype), x)


def _without_halo(x: Any, axis: int) -> Any:
    """A block whose outer cells are copies of the inner ones, as where neighbours sent nothing."""
    size = x.shape[axis]
    return jnp.take(x, jnp.clip(jnp.arange(size), min(1, size - 1), max(size - 2, 0)), axis=axis)


def _padded(x: Any) -> Any:
    return jnp.concatenate([jnp.asarray(x), jnp.zeros((2, *x.shape[1:]), x.dtype)])


def _doubled(state: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf | leaf if leaf.dtype == jnp.bool_ else leaf + leaf, state)


def _moved(identity: Any) -> Any:
    """Another state: not the neutral one, finite and of the same types."""
    return jax.tree.map(
        lambda leaf: (
            ~leaf if leaf.dtype == jnp.bool_ else jnp.where(jnp.abs(leaf) < 1e9, leaf + 1, 0).astype(leaf.dtype)
        ),
        identity,
    )


def _one_off(leaf: Any) -> Any:
    return leaf + 1 if jnp.issubdtype(jnp.result_type(leaf), jnp.inexact) else leaf


def _leaf(tree: Any, number: int, change: Callable[[int], Any]) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    changed = [change(i).astype(leaf.dtype) if i == number else leaf for i, leaf in enumerate(leaves)]
    return jax.tree.unflatten(structure, changed)


def _at(tree: Any, number: int) -> Any:
    return jnp.asarray(jax.tree.leaves(tree)[number])
