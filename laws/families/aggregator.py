"""The laws of aggregators: however elements are cut, masked, paired and presented, the result is one, and right."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from combinators.aggregation.aggregator import Aggregator
from combinators.aggregators import Count
from combinators.merging.leafwise import leafwise
from laws.families.monoid import finite_gradient
from laws.law import Law, drawn
from laws.subjects.aggregator import COUNT, AggregatorSubject

# Every number of elements that is lifted at once compiles on its own; in all of the laws these are 0, 1, 2, 3 and 5.
PARTITIONS = ((0, 5), (5, 0), (2, 3), (3, 0, 2), (1, 1, 1, 1, 1))
MASK = (True, False, True, True, False)
ORDER = (3, 0, 4, 1, 2)
STARTS, WINDOW = (2, 3, 4), 3
# Labels of groups: ascending and not, outside of the groups on both sides, at the ends and between; group 2 is empty.
GROUPS, LABELS = 3, ((-1, -1, -1, 1, 1), (-5, 0, 0, 1, 3), (1, -2, 0, 7, 1))

BEAM = "Apache Beam, CombineFnTester: every sharding, shuffled, with empty accumulators"
DABA = "Tangwongsan, Hirzel, Schneider 2017"
JAX = "JAX: transformations keep the meaning of pure functions"
FOLDL = "Gonzalez, Haskell's foldl package: folds as lift, monoid and present"


def step(s: AggregatorSubject, xs: Any) -> tuple[Any, Any]:
    """Add the last two elements to the others, one after the other."""
    state = s.many(*(x[:3] for x in xs))
    for i in range(3, COUNT):
        state = s.add(state, s.lift(*(x[i] for x in xs)))
    return s.present(state), s.present(s.many(*xs))


def lift_many(s: AggregatorSubject, xs: Any) -> tuple[Any, Any]:
    """Lift all elements at once and one by one."""
    single = [s.lift(*(x[i] for x in xs)) for i in range(COUNT)]
    return s.present(s.many(*xs)), s.present(reduce(s.add, single))


def chunks(s: AggregatorSubject, xs: Any) -> tuple[Any, Any]:
    """Cut the elements in pieces, empty ones among them, and merge the pieces' states."""
    whole = s.present(s.many(*xs))
    cut = [s.present(reduce(s.add, _pieces(s, xs, sizes))) for sizes in PARTITIONS]
    return cut, [whole] * len(cut)


def empty(s: AggregatorSubject, xs: Any) -> tuple[Any, Any]:
    """Lift no element, and present it."""
    nothing = s.many(*(x[:0] for x in xs))
    identity = s.identity_like(nothing)
    return (nothing, s.present(nothing)), (identity, s.present(identity))


def empty_gradient(s: AggregatorSubject, xs: Any) -> tuple[Any, Any]:
    """Differentiate what is presented of nothing, merged with nothing and with something."""
    nothing = s.identity_like(jax.eval_shape(s.aggregator.lift, *(x[0] for x in xs)))
    something = s.lift(*(x[0] for x in xs))
    finite = [_finite_slopes(s, nothing, nothing), _finite_slopes(s, nothing, something)]
    return finite, jax.tree.map(jnp.ones_like, finite)


def masking(s: AggregatorSubject, xs: Any) -> tuple[Any, Any]:
    """Put the identity in the place of masked elements, and leave them out."""
    lifted = [s.lift(*(x[i] for x in xs)) for i in range(COUNT)]
    masked = [state if keep else s.identity_like(state) for state, keep in zip(lifted, MASK, strict=True)]
    kept = jnp.asarray([i for i, keep in enumerate(MASK) if keep])
    return s.present(reduce(s.add, masked)), s.present(s.many(*(jnp.asarray(x)[kept] for x in xs)))


def permutation(s: AggregatorSubject, xs: Any) -> tuple[Any, Any]:
    """Reorder the elements."""
    order = jnp.asarray(ORDER)
    return s.present(s.many(*(jnp.asarray(x)[order] for x in xs))), s.present(s.many(*xs))


def congruence(s: AggregatorSubject, xs: Any) -> tuple[Any, Any]:
    """Present states that were merged in different ways."""
    a, b, c, *_ = [s.lift(*(x[i] for x in xs)) for i in range(COUNT)]
    return s.present(s.add(s.add(a, b), c)), s.present(s.add(a, s.add(b, c)))


def pairing(s: AggregatorSubject, xs: Any) -> tuple[Any, Any]:
    """Run two aggregators in one pass."""
    count = Aggregator(_count_lift, Count().monoid, Count().present, lift_many=_count_many)
    both = s.once("pairing", (s.aggregator & count).run)
    return both(*xs), (s.present(s.many(*xs)), np.int32(COUNT))


def contramap(s: AggregatorSubject, xs: Any) -> tuple[Any, Any]:
    """Transform the elements before they are lifted, and before the aggregator sees them."""
    left = s.once("contramap", s.aggregator.contramap(_opposites).run)
    changed = _opposites(*xs)
    return left(*xs), s.present(s.many(*(changed if isinstance(changed, tuple) else (changed,))))


def presenting(s: AggregatorSubject, xs: Any) -> tuple[Any, Any]:
    """Transform the result inside and after the aggregator."""
    return s.once("presenting", s.aggregator.map(_doubled).run)(*xs), _doubled(s.present(s.many(*xs)))


def segments(s: AggregatorSubject, xs: Any) -> tuple[Any, Any]:
    """Merge with flags that start anew, in a balanced bracketing, and aggregate the last segment alone."""
    left: list[Any] = []
    right: list[Any] = []
    for start in STARTS:
        a, b, c, d, e = [(np.asarray(i == start), s.lift(*(x[i] for x in xs))) for i in range(COUNT)]
        merged = _restart(s, _restart(s, a, _restart(s, b, c)), _restart(s, d, e))
        left.append(s.present(merged[1]))
        right.append(s.present(s.many(*(x[start:] for x in xs))))
    return left, right


def groups(s: AggregatorSubject, xs: Any) -> tuple[Any, Any]:
    """Aggregate by key and by segment, some labels outside of the groups, and the elements of each group alone."""
    left: list[Any] = []
    right: list[Any] = []
    for name in ("by_key", "by_segment"):
        run = s.once(name, getattr(s.aggregator, name)(None, GROUPS).run)
        for labels in LABELS:
            grouped = run(*xs, np.asarray(labels, np.int32))
            for group in range(GROUPS):
                chosen = np.asarray([i for i, label in enumerate(labels) if label == group], np.int32)
                left.append(jax.tree.map(lambda leaf, group=group: leaf[group], grouped))
                right.append(s.present(s.many(*(jnp.asarray(x)[chosen] for x in xs))))
    return left, right


def windows(s: AggregatorSubject, xs: Any) -> tuple[Any, Any]:
    """Slide a window by two stacks (suffixes of what leaves, prefixes of what enters), and refold every window."""
    lifted = [s.lift(*(x[i] for x in xs)) for i in range(COUNT)]
    cut = WINDOW - 1
    suffixes = list(itertools.accumulate(reversed(lifted[:cut]), lambda late, early: s.add(early, late)))[::-1]
    prefixes = list(itertools.accumulate(lifted[cut : 2 * cut], s.add))
    slid = [s.add(suffix, prefix) for suffix, prefix in zip(suffixes, prefixes, strict=True)]
    refolded = [s.many(*(x[start : start + WINDOW] for x in xs)) for start in range(cut)]
    return [s.present(state) for state in slid], [s.present(state) for state in refolded]


def removal(s: AggregatorSubject, xs: Any) -> tuple[Any, Any]:
    """Take the first element away from the state of three, and leave it out."""
    inverse = s.aggregator.monoid.inverse
    assert inverse is not None
    first = leafwise(inverse)(s.lift(*(x[0] for x in xs)))
    return s.present(s.add(first, s.many(*(x[:3] for x in xs)))), s.present(s.many(*(x[1:3] for x in xs)))


def eager(s: AggregatorSubject, xs: Any) -> tuple[Any, Any]:
    """Run operation by operation, and compiled."""
    return s.aggregator.run(*xs), s.present(s.many(*xs))


def mapping(s: AggregatorSubject, xs: Any) -> tuple[Any, Any]:
    """Aggregate two columns by `vmap`, and each on its own."""
    others = [jnp.broadcast_to(x[:1], x.shape) for x in xs]
    both = s.mapped(*(jnp.stack([x, y]) for x, y in zip(xs, others, strict=True)))
    alone = [s.present(s.many(*xs)), s.present(s.many(*others))]
    return [jax.tree.map(lambda leaf, i=i: leaf[i], both) for i in (0, 1)], alone


def semantic(s: AggregatorSubject, xs: Any) -> tuple[Any]:
    """Present what was lifted at once."""
    return (s.present(s.many(*xs)),)


def reference(s: AggregatorSubject, xs: Any) -> Any:
    """Run the aggregator's reference in NumPy."""
    assert s.aggregator.reference is not None
    return s.aggregator.reference(*xs)


def _restart(s: AggregatorSubject, left: Any, right: Any) -> Any:
    """The segmented monoid: the later state alone where it starts a segment. Source: Blelloch 1990, section 1.5."""
    merged = s.add(left[1], right[1])
    chosen = jax.tree.map(lambda alone, both: jnp.where(right[0], alone, both), right[1], merged)
    return left[0] | right[0], chosen


def _pieces(s: AggregatorSubject, xs: Any, sizes: Sequence[int]) -> list[Any]:
    edges = list(itertools.accumulate(sizes, initial=0))
    return [s.many(*(x[low:high] for x in xs)) for low, high in itertools.pairwise(edges)]


def _count_lift(*xs: Any) -> Any:
    del xs
    return jnp.ones((), jnp.int32)


def _count_many(*xs: Any) -> Any:
    return jnp.asarray(xs[0].shape[0], jnp.int32)


def _opposites(*xs: Any) -> Any:
    changed = tuple(~x if x.dtype == jnp.bool_ else -x if jnp.issubdtype(x.dtype, jnp.inexact) else x for x in xs)
    return changed[0] if len(changed) == 1 else changed


def _doubled(result: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf + leaf, result)


def _finite_slopes(s: AggregatorSubject, a: Any, b: Any) -> list[Any]:
    return finite_gradient(lambda left, right: s.present(s.add(left, right)), (a, b))


def _commutes(s: AggregatorSubject) -> str | None:
    return None if s.aggregator.monoid.commutative else f"the monoid of `{s.name}` does not declare commutative"


def _inverts(s: AggregatorSubject) -> str | None:
    return None if s.aggregator.monoid.inverse is not None else f"the monoid of `{s.name}` does not declare inverse"


def _has_reference(s: AggregatorSubject) -> str | None:
    return f"`{s.name}` has no reference" if s.aggregator.reference is None else None


_XS = drawn("elements", "xs")

LAWS = (
    Law("aggregator.step", "present([xs] + lift x) ~ present [xs ++ x]", FOLDL, step, _XS, eager=True),
    Law(
        "aggregator.lift_many",
        "present(lift_many xs) ~ present(lift x1 + ... + lift xn)",
        FOLDL,
        lift_many,
        _XS,
        eager=True,
    ),
    Law("aggregator.chunks", "present([xs] + ... + [zs]) ~ present [xs ++ ... ++ zs]", BEAM, chunks, _XS, eager=True),
    Law("aggregator.empty", "lift_many [], present [] ~ e, present e", BEAM, empty, _XS, eager=True),
    Law(
        "aggregator.empty_gradient",
        "d present(e + e), d present(e + lift x) ~ finite",
        "jax issue 6811: the gradient of logsumexp over nothing",
        empty_gradient,
        _XS,
        judged="bits",
    ),
    Law("aggregator.masking", "present(mask(lift x1) + ...) ~ present [filter xs]", BEAM, masking, _XS, eager=True),
    Law(
        "aggregator.permutation",
        "present [shuffle xs] ~ present [xs]",
        BEAM,
        permutation,
        _XS,
        _commutes,
        eager=True,
    ),
    Law(
        "aggregator.congruence",
        "present((a + b) + c) ~ present(a + (b + c))",
        "equality of a quotient",
        congruence,
        _XS,
        eager=True,
    ),
    Law("aggregator.pairing", "run(A & Count) ~ (run A, run Count)", FOLDL, pairing, _XS, eager=True),
    Law("aggregator.contramap", "run(A . f)(xs) ~ run(A)(map f xs)", FOLDL, contramap, _XS, eager=True),
    Law("aggregator.presenting", "run(map g A) ~ g(run A)", FOLDL, presenting, _XS, eager=True),
    Law(
        "aggregator.segments",
        "present of the flagged fold ~ present [last segment]",
        "Blelloch 1990, section 1.5: segmented scans",
        segments,
        _XS,
        eager=True,
    ),
    Law(
        "aggregator.groups",
        "run(A by key)(xs, labels)[k] ~ run(A)(xs of label k)",
        "grouped aggregation; Blelloch 1990, section 1.5: segmented scans",
        groups,
        _XS,
        eager=True,
    ),
    Law("aggregator.windows", "present(suffix + prefix) ~ present [window of xs]", DABA, windows, _XS, eager=True),
    Law(
        "aggregator.removal",
        "present(inverse(lift x1) + [xs]) ~ present [xs without x1]",
        "declared: inverse; subtract-on-evict of " + DABA,
        removal,
        _XS,
        _inverts,
        scaled_by=0,
        eager=True,
    ),
    Law("aggregator.eager", "run(xs), not compiled ~ run(xs), compiled", JAX, eager, _XS, eager=True),
    Law("aggregator.mapping", "vmap(run)([xs, ys]) ~ [run(xs), run(ys)]", JAX, mapping, _XS, eager=True),
    Law(
        "aggregator.semantic",
        "run(xs) ~ reference(xs)",
        "associativity does not imply correctness: Pebay 2008; Schubert, Gertz 2018",
        semantic,
        _XS,
        _has_reference,
        oracle=reference,
        eager=True,
    ),
)
