"""The laws of feedback: a step `(x, state) -> (y, state)` run along a sequence, its state carried over.

There is no law of yanking: a scan with a state that waits for the next step is feedback, and not a trace.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from combinators.arrows.arrow import Arrow, identity
from combinators.arrows.program import program
from combinators.index_space.tensor_type import TensorType
from laws.families.arrow import doubled, negated, single
from laws.law import Law, drawn
from laws.subjects.arrow import LENGTH, TIME, ArrowSubject

KATIS = "Katis, Sabadini, Walters 2002, Feedback, trace and fixed-point semantics"


def unrolling(s: ArrowSubject, sequence: Any, xs: Any) -> tuple[Any, Any]:
    """Run along a sequence, and step by step."""
    ys: list[Any] = []
    state = xs[1]
    for x in sequence:
        y, state = s.run(s.arrow, x, state)
        ys.append(y)
    return _along(s, s.arrow, sequence, xs[1]), (jnp.stack(ys), state)


def chunks(s: ArrowSubject, sequence: Any, xs: Any) -> tuple[Any, Any]:
    """Run along two pieces of a sequence, the second from the final state of the first."""
    half = LENGTH // 2
    first, middle = _along(s, s.arrow, sequence[:half], xs[1])
    second, final = _along(s, s.arrow, sequence[half:], middle)
    return (jnp.concatenate([first, second]), final), _along(s, s.arrow, sequence, xs[1])


def tightening_before(s: ArrowSubject, sequence: Any, xs: Any) -> tuple[Any, Any]:
    """Put a map before the step, inside and outside of the loop."""
    inside = (single(doubled) * identity) >> s.arrow
    outside = (single(doubled) * identity) >> s.arrow.feedback(TIME)
    return _along(s, inside, sequence, xs[1]), _whole(s, outside, sequence, xs[1])


def tightening_behind(s: ArrowSubject, sequence: Any, xs: Any) -> tuple[Any, Any]:
    """Put a map behind the step, inside and outside of the loop."""
    inside = s.arrow >> (single(doubled) * identity)
    outside = s.arrow.feedback(TIME) >> (single(doubled) * identity)
    return _along(s, inside, sequence, xs[1]), _whole(s, outside, sequence, xs[1])


def sliding(s: ArrowSubject, sequence: Any, xs: Any) -> tuple[Any, Any]:
    """Carry the state in another form (negated, which is its own inverse), the first and the final state too."""
    turned = (identity * single(negated)) >> s.arrow >> (identity * single(negated))
    ys, final = _along(s, turned, sequence, _opposite(xs[1]))
    return (ys, _opposite(final)), _along(s, s.arrow, sequence, xs[1])


def passing(s: ArrowSubject, sequence: Any, xs: Any) -> tuple[Any, Any]:
    """Let a sequence pass by, inside and outside of the loop."""
    around = program(lambda pair, state: _beside(s, pair, state)).feedback(TIME)
    kind = _sequence_type(s, LENGTH)
    (ys, passed), final = s.run(around, (sequence, sequence), xs[1], types=((kind, kind), s.operands[1]))
    alone, end = _along(s, s.arrow, sequence, xs[1])
    return (ys, passed, final), (alone, sequence, end)


def _beside(s: ArrowSubject, pair: Any, state: Any) -> Any:
    y, after = s.arrow.apply(pair[0], state)
    return (y, pair[1]), after


def _along(s: ArrowSubject, step: Arrow[Any, Any], sequence: Any, state: Any) -> Any:
    return _whole(s, step.feedback(TIME), sequence, state)


def _whole(s: ArrowSubject, arrow: Arrow[Any, Any], sequence: Any, state: Any) -> Any:
    return s.run(arrow, sequence, state, types=(_sequence_type(s, sequence.shape[0]), s.operands[1]))


def _sequence_type(s: ArrowSubject, length: int) -> TensorType:
    x = s.operands[0]
    return TensorType.make((TIME, *x.names), (length, *x.shape), x.dtype)


def _opposite(state: Any) -> Any:
    return jnp.logical_not(state) if state.dtype == jnp.bool_ else jnp.negative(state)


def _applies(s: ArrowSubject) -> str | None:
    if len(s.operands) != 2 or s.graph.out_tree != jax.tree.structure((0, 0)):
        return f"`{s.name}` is no step (x, state) -> (y, state)"
    before, after = s.operands[1], s.result_types[1]
    if (before.shape, before.dtype) != (after.shape, after.dtype):
        return f"`{s.name}` is no step (x, state) -> (y, state): its second result is no {before}"
    return None


_SEQUENCE = drawn("sequence", "sequence") + drawn("operands", "xs")


def _law(name: str, formula: str, function: Any) -> Law:
    return Law(f"feedback.{name}", formula, KATIS, function, _SEQUENCE, _applies, depth=LENGTH)


LAWS = (
    _law("unrolling", "f.feedback on (xs, s) ~ f on (x1, s), f on (x2, s'), ...", unrolling),
    _law("chunks", "f.feedback on xs, then on ys from its state ~ f.feedback on xs ++ ys", chunks),
    _law("tightening_before", "((g * id) >> f).feedback ~ (g * id) >> f.feedback", tightening_before),
    _law("tightening_behind", "(f >> (g * id)).feedback ~ f.feedback >> (g * id)", tightening_behind),
    _law(
        "sliding", "((id * h) >> f >> (id * h')).feedback from h'(s) ~ f.feedback from s, with h' inverse of h", sliding
    ),
    _law("passing", "feedback of (x, c) -> (f(x), c) ~ f.feedback beside the identity", passing),
)
