"""The laws of choice: one case counts, and the payload of the other is dead, whatever it holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from combinators.arrows.arrow import Arrow
from combinators.arrows.choice import Either
from combinators.arrows.program import program
from combinators.index_space.tensor_type import TensorType
from combinators.leaves.map import Map
from laws.families.arrow import HUGHES, doubled, negated, single
from laws.law import Law, drawn
from laws.subjects.arrow import ArrowSubject

FLAG = TensorType((), jnp.bool_)


def left_case(s: ArrowSubject, xs: Any, c: Any) -> tuple[Any, Any]:
    """Act on the left case, and leave the right one."""
    x = xs[0]
    live, dead = _case(s, s.arrow.left(), True, x, c), _case(s, s.arrow.left(), False, x, c)
    return (live.is_left, live.left, dead.is_left, dead.right), (_true(), s.run(s.arrow, x), ~_true(), c)


def right_case(s: ArrowSubject, xs: Any, c: Any) -> tuple[Any, Any]:
    """Act on the right case, and leave the left one."""
    x = xs[0]
    live, dead = _case(s, s.arrow.right(), False, c, x), _case(s, s.arrow.right(), True, c, x)
    return (live.is_left, live.right, dead.is_left, dead.left), (~_true(), s.run(s.arrow, x), _true(), c)


def left_composition(s: ArrowSubject, xs: Any, c: Any) -> tuple[Any, Any]:
    """Act twice on the left case, at once and one after the other."""
    g = single(doubled)
    return _both(s, (s.arrow >> g).left(), xs[0], c), _both(s, s.arrow.left() >> g.left(), xs[0], c)


def left_exchange(s: ArrowSubject, xs: Any, c: Any) -> tuple[Any, Any]:
    """Act on both cases in either order."""
    g = single(doubled)
    return _both(s, s.arrow.left() >> g.right(), xs[0], c), _both(s, g.right() >> s.arrow.left(), xs[0], c)


def left_association(s: ArrowSubject, xs: Any, c: Any, d: Any) -> tuple[Any, Any]:
    """Act on the left of the left of three cases, nested in both ways."""
    outer = Either(FLAG, Either(FLAG, s.operands[0], s.operands[0]), s.operands[0])
    turn = program(_turned)
    found: list[Any] = []
    for arrow in (s.arrow.left().left() >> turn, turn >> s.arrow.left()):
        runs = []
        for first, second in ((True, True), (True, False), (False, False)):
            case = Either(_flag(first), Either(_flag(second), xs[0], c), d)
            runs.append(_live(s.run(arrow, case, types=(outer,))))
        found.append(runs)
    return found[0], found[1]


def fanin(s: ArrowSubject, xs: Any, c: Any) -> tuple[Any, Any]:
    """Choose between two arrows, on both cases."""
    g = single(doubled)
    chosen = [_case(s, s.arrow | _to_result(s, g), flag, xs[0], c) for flag in (True, False)]
    return chosen, [s.run(s.arrow, xs[0]), s.run(_to_result(s, g), c)]


def fanin_composition(s: ArrowSubject, xs: Any, c: Any) -> tuple[Any, Any]:
    """Compose behind a choice, and inside of both cases."""
    g, h = _to_result(s, single(negated)), single(doubled)
    left, right = (s.arrow | g) >> h, (s.arrow >> h) | (g >> h)
    return [_case(s, left, f, xs[0], c) for f in (True, False)], [_case(s, right, f, xs[0], c) for f in (True, False)]


def dead_payload(s: ArrowSubject, xs: Any, c: Any) -> tuple[Any, Any]:
    """Poison the payload that does not count."""
    x, choice = xs[0], s.arrow | s.arrow
    clean = _case(s, choice, True, x, c), _case(s, choice, False, c, x), _case(s, s.arrow.left(), False, c, x).right
    poison = jax.tree.map(_poison, c)
    seen = (
        _case(s, choice, True, x, poison),
        _case(s, choice, False, poison, x),
        _case(s, s.arrow.left(), False, poison, x).right,
    )
    return seen, clean


def _case(s: ArrowSubject, arrow: Arrow[Any, Any], is_left: bool, left: Any, right: Any) -> Any:
    kind = Either(FLAG, s.operands[0], s.operands[0])
    return s.run(arrow, Either(_flag(is_left), left, right), types=(kind,))


def _both(s: ArrowSubject, arrow: Arrow[Any, Any], left: Any, right: Any) -> list[Any]:
    """What counts of the results on both cases."""
    return [_live(_case(s, arrow, flag, left, right), flag) for flag in (True, False)]


def _live(case: Any, is_left: bool | None = None) -> Any:
    """The payload that counts, and the flags; payloads of dead cases are replaced by zeros."""
    if is_left is not None:
        return case.is_left, case.left if is_left else case.right
    inner = case.right
    dead = jax.tree.map(jnp.zeros_like, (case.left, inner.left, inner.right))
    live = (case.left, inner.left, inner.right)
    flags = (case.is_left, ~case.is_left & inner.is_left, ~case.is_left & ~inner.is_left)
    chosen = [
        jax.tree.map(lambda a, b, f=f: jnp.where(f, a, b), a, b) for f, a, b in zip(flags, live, dead, strict=True)
    ]
    return flags, chosen


def _turned(case: Any) -> Any:
    """`Either(Either(a, b), c)` as `Either(a, Either(b, c))`."""
    both = Map(jnp.logical_and)(case.is_left, case.left.is_left)
    # Where the case is neither left nor right of the left, it is the right one.
    middle = Map(jnp.logical_and)(case.is_left, Map(jnp.logical_not)(case.left.is_left))
    return Either(both, case.left.left, Either(middle, case.left.right, case.right))


def _to_result(s: ArrowSubject, g: Arrow[Any, Any]) -> Arrow[Any, Any]:
    """An arrow of the result type of the subject: itself behind `g`, which keeps the type of the operand."""
    return g >> s.arrow


def _flag(value: bool) -> Any:
    return np.asarray(value)


def _true() -> Any:
    return np.asarray(True)


def _poison(x: Any) -> Any:
    if jnp.issubdtype(x.dtype, jnp.inexact):
        return jnp.full_like(x, jnp.nan)
    return ~x if x.dtype == jnp.bool_ else jnp.roll(jnp.ravel(x), 1).reshape(x.shape)


def _applies(s: ArrowSubject) -> str | None:
    if len(s.operands) != 1:
        return f"`{s.name}` takes several operands, and a case has one payload"
    return None if s.gives_one else f"`{s.name}` gives several results"


_XC: Sequence[tuple[str, str]] = drawn("operands", "xs") + drawn("extra", "c")


def _law(name: str, formula: str, function: Any, extra: str = "", judged: Any = "rounding") -> Law:
    takes = (*_XC, *drawn("extra", extra))
    return Law(f"choice.{name}", formula, HUGHES, function, takes, _applies, judged)


LAWS = (
    _law("left_case", "f.left() on Left x, Right c ~ Left f(x), Right c", left_case),
    _law("right_case", "f.right() on Right x, Left c ~ Right f(x), Left c", right_case),
    _law("left_composition", "(f >> g).left() ~ f.left() >> g.left()", left_composition),
    _law("left_exchange", "f.left() >> g.right() ~ g.right() >> f.left()", left_exchange),
    _law("left_association", "f.left().left() >> assoc ~ assoc >> f.left()", left_association, "d"),
    _law("fanin", "(f | g) on Left x, Right c ~ f(x), g(c)", fanin),
    _law("fanin_composition", "(f | g) >> h ~ (f >> h) | (g >> h)", fanin_composition),
    _law("dead_payload", "(f | f) with a poisoned dead payload ~ f | f", dead_payload, judged="bits"),
)
