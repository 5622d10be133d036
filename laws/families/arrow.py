"""The laws of arrows: a category with products. Every equation is one of composed programs, run on arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from combinators.arrows.arrow import Arrow, identity
from combinators.arrows.compose import one_or_all
from combinators.arrows.program import program
from combinators.leaves.map import Map
from laws.law import Law, drawn
from laws.subjects.arrow import AXES, ArrowSubject

HUGHES = "Hughes 2000, Generalising Monads to Arrows; Paterson 2003"
CATEGORY = "the definition of a category"
JAX = "JAX: transformations keep the meaning of pure functions"


def negated(value: Any) -> Any:
    """A pure map to compose with: of any tensor, and not the identity."""
    return Map(jnp.logical_not if value.dtype == np.bool_ else jnp.negative)(value)


def doubled(value: Any) -> Any:
    """Another pure map, which does not commute with adding one."""
    return Map(jnp.logical_not if value.dtype == np.bool_ else _affine)(value)


def _affine(x: Any) -> Any:
    return x + x + jnp.ones((), x.dtype)


def _both(x: Any) -> Any:
    """`doubled` after `negated`, as one function of arrays."""
    return x if x.dtype == jnp.bool_ else _affine(jnp.negative(x))


def after(function: Callable[[Any], Any]) -> Arrow[Any, Any]:
    """A map of every result, however many there are."""
    return program(lambda *values: one_or_all(tuple(jax.tree.map(function, value) for value in values)))


def single(function: Callable[[Any], Any]) -> Arrow[Any, Any]:
    """A map of one tensor, of known arity."""
    return program(lambda value: function(value))


def left_identity(s: ArrowSubject, xs: Any) -> tuple[Any, Any]:
    """Compose the identity before."""
    return s.run(identity >> s.arrow, *xs), s.run(s.arrow, *xs)


def right_identity(s: ArrowSubject, xs: Any) -> tuple[Any, Any]:
    """Compose the identity behind."""
    return s.run(s.arrow >> identity, *xs), s.run(s.arrow, *xs)


def associativity(s: ArrowSubject, xs: Any) -> tuple[Any, Any]:
    """Compose three arrows in both ways."""
    g, h = after(negated), after(doubled)
    return s.run((s.arrow >> g) >> h, *xs), s.run(s.arrow >> (g >> h), *xs)


def composition(s: ArrowSubject, xs: Any) -> tuple[Any, Any]:
    """Compose, and run one arrow after the other."""
    g = after(doubled)
    return s.run(s.arrow >> g, *xs), s.run(g, *s.results(xs), types=s.result_types)


def first(s: ArrowSubject, xs: Any, c: Any) -> tuple[Any, Any]:
    """Let an operand pass by."""
    return s.run(s.arrow.first(), *xs, c, types=_with_extra(s)), (*s.results(xs), c)


def first_projection(s: ArrowSubject, xs: Any, c: Any) -> tuple[Any, Any]:
    """Forget what passed by."""
    types = _with_extra(s)
    fst = program(lambda *v: one_or_all(v[:-1]))
    return s.run(s.arrow.first() >> fst, *xs, c, types=types), s.run(fst >> s.arrow, *xs, c, types=types)


def first_composition(s: ArrowSubject, xs: Any, c: Any) -> tuple[Any, Any]:
    """Let an operand pass by two arrows, at once and one after the other."""
    types, g = _with_extra(s), single(negated)
    left, right = (s.arrow >> g).first(), s.arrow.first() >> g.first()
    return s.run(left, *xs, c, types=types), s.run(right, *xs, c, types=types)


def first_exchange(s: ArrowSubject, xs: Any, c: Any) -> tuple[Any, Any]:
    """Change what passes by, before and behind."""
    types = _with_extra(s)
    last = program(lambda *v: (*v[:-1], doubled(v[-1])))
    left, right = s.arrow.first() >> last, last >> s.arrow.first()
    return s.run(left, *xs, c, types=types), s.run(right, *xs, c, types=types)


def first_association(s: ArrowSubject, xs: Any, c: Any, d: Any) -> tuple[Any, Any]:
    """Let two operands pass by, one after the other and as a pair."""
    types = (*_with_extra(s), s.operands[0])
    left, right = s.arrow.first().first(), s.arrow * (identity * identity)
    return s.run(left, *xs, c, d, types=types), s.run(right, *xs, c, d, types=types)


def second(s: ArrowSubject, xs: Any, c: Any) -> tuple[Any, Any]:
    """Let an operand pass by in front."""
    types = (s.operands[0], *s.operands)
    to_back, to_front = program(lambda *v: (*v[1:], v[0])), program(lambda *v: (v[-1], *v[:-1]))
    swapped = to_back >> s.arrow.first() >> to_front
    return s.run(s.arrow.second(), c, *xs, types=types), s.run(swapped, c, *xs, types=types)


def parallel(s: ArrowSubject, xs: Any, c: Any) -> tuple[Any, Any]:
    """Run two arrows side by side, and each on its own."""
    g = single(doubled)
    alone = (*s.results(xs), s.run(g, c, types=s.operands[:1]))
    return s.run(s.arrow * g, *xs, c, types=_with_extra(s)), alone


def parallel_association(s: ArrowSubject, xs: Any, c: Any, d: Any) -> tuple[Any, Any]:
    """Run three arrows side by side, paired in both ways."""
    types, g, h = (*_with_extra(s), s.operands[0]), single(doubled), single(negated)
    left, right = (s.arrow * g) * h, s.arrow * (g * h)
    return s.run(left, *xs, c, d, types=types), s.run(right, *xs, c, d, types=types)


def fanout(s: ArrowSubject, xs: Any) -> tuple[Any, Any]:
    """Give two arrows the same operands, at once and one after the other."""
    other = program(lambda *v: doubled(v[0]))
    return s.run(s.arrow & other, *xs), (*s.results(xs), s.run(other, *xs))


def first_parallel(s: ArrowSubject, xs: Any, c: Any) -> tuple[Any, Any]:
    """Let an operand pass by, and put the identity beside."""
    types = _with_extra(s)
    return s.run(s.arrow.first(), *xs, c, types=types), s.run(s.arrow * identity, *xs, c, types=types)


def pure(s: ArrowSubject, xs: Any) -> tuple[Any, Any]:
    """Compose with two pure functions as arrows, and with their composition as one."""
    both = after(lambda value: Map(_both)(value))
    return s.run(s.arrow >> after(negated) >> after(doubled), *xs), s.run(s.arrow >> both, *xs)


def fanout_parallel(s: ArrowSubject, xs: Any) -> tuple[Any, Any]:
    """Give two arrows the same operands, and copies of them."""
    other = program(lambda *v: doubled(v[0]))
    copied = program(lambda *v: (*v, v[0]))
    return s.run(s.arrow & other, *xs), s.run(copied >> (s.arrow * single(doubled)), *xs)


def fanout_projection(s: ArrowSubject, xs: Any) -> tuple[Any, Any]:
    """Forget the results of the second arrow, and never run it."""
    other = program(lambda *v: doubled(v[0]))
    fst = program(lambda *v: one_or_all(v[:-1]))
    return s.run((s.arrow & other) >> fst, *xs), s.run(s.arrow, *xs)


def fanout_composition(s: ArrowSubject, xs: Any) -> tuple[Any, Any]:
    """Put a pure map before both arrows, and before each of them."""
    h, other = after(negated), program(lambda *v: doubled(v[0]))
    return s.run(h >> (s.arrow & other), *xs), s.run((h >> s.arrow) & (h >> other), *xs)


def eager(s: ArrowSubject, xs: Any) -> tuple[Any, Any]:
    """Run operation by operation, and compiled."""
    compiled = s.cache.setdefault("compiled", jax.jit(lambda *v: s.run(s.arrow, *v)))
    return s.run(s.arrow, *xs), compiled(*xs)


def interchange(s: ArrowSubject, xs: Any, c: Any) -> tuple[Any, Any]:
    """Compose pairs, and pair compositions."""
    types = _with_extra(s)
    g, h, k = single(doubled), single(negated), single(negated)
    left, right = (s.arrow * g) >> (h * k), (s.arrow >> h) * (g >> k)
    return s.run(left, *xs, c, types=types), s.run(right, *xs, c, types=types)


def transformations(s: ArrowSubject, xs: Any) -> tuple[Any, Any]:
    """Run mapped by `vmap`, and plainly."""
    mapped = jax.vmap(lambda *v: s.run(s.arrow, *v))(*(jnp.stack([x, x]) for x in xs))
    plain = s.run(s.arrow, *xs)
    return jax.tree.map(lambda y: (y[0], y[1]), mapped), jax.tree.map(lambda y: (y, y), plain)


def _with_extra(s: ArrowSubject) -> AXES:
    return (*s.operands, s.operands[0])


def one_result(s: ArrowSubject) -> str | None:
    """Say why laws that compose behind an arrow inside of a pair do not apply."""
    return None if s.gives_one else f"`{s.name}` gives several results"


_XS = drawn("operands", "xs")
_XC = _XS + drawn("extra", "c")

LAWS = (
    Law("arrow.left_identity", "identity >> f ~ f", CATEGORY, left_identity, _XS),
    Law("arrow.right_identity", "f >> identity ~ f", CATEGORY, right_identity, _XS),
    Law("arrow.associativity", "(f >> g) >> h ~ f >> (g >> h)", CATEGORY, associativity, _XS),
    Law("arrow.composition", "f >> g ~ g after f", CATEGORY, composition, _XS),
    Law("arrow.first", "f.first() on (x, c) ~ (f(x), c)", HUGHES, first, _XC),
    Law("arrow.first_projection", "f.first() >> fst ~ fst >> f", HUGHES, first_projection, _XC),
    Law(
        "arrow.first_composition",
        "(f >> g).first() ~ f.first() >> g.first()",
        HUGHES,
        first_composition,
        _XC,
        one_result,
    ),
    Law("arrow.first_exchange", "f.first() >> (id * g) ~ (id * g) >> f.first()", HUGHES, first_exchange, _XC),
    Law(
        "arrow.first_association",
        "f.first().first() ~ f * (identity * identity)",
        HUGHES,
        first_association,
        _XC + drawn("extra", "d"),
    ),
    Law("arrow.second", "f.second() ~ swap >> f.first() >> swap", HUGHES, second, _XC),
    Law("arrow.parallel", "(f * g) on (x, c) ~ (f(x), g(c))", HUGHES, parallel, _XC),
    Law(
        "arrow.parallel_association",
        "(f * g) * h ~ f * (g * h)",
        HUGHES,
        parallel_association,
        _XC + drawn("extra", "d"),
    ),
    Law("arrow.fanout", "(f & g) on x ~ (f(x), g(x))", HUGHES, fanout, _XS),
    Law("arrow.interchange", "(f * g) >> (h * k) ~ (f >> h) * (g >> k)", HUGHES, interchange, _XC, one_result),
    Law("arrow.first_parallel", "f.first() ~ f * identity", HUGHES, first_parallel, _XC),
    Law("arrow.pure", "f >> arr(g) >> arr(h) ~ f >> arr(h after g)", HUGHES, pure, _XS),
    Law("arrow.fanout_parallel", "f & g ~ copy >> (f * g)", HUGHES, fanout_parallel, _XS),
    Law("arrow.fanout_projection", "(f & g) >> fst ~ f", "the laws of products", fanout_projection, _XS),
    Law(
        "arrow.fanout_composition",
        "h >> (f & g) ~ (h >> f) & (h >> g)",
        "the laws of products, for pure h",
        fanout_composition,
        _XS,
    ),
    Law("arrow.transformations", "vmap(f) ~ f of each", JAX, transformations, _XS),
    Law("arrow.eager", "f(x), not compiled ~ f(x), compiled", JAX, eager, _XS, eager=True),
)
