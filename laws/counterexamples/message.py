"""The text of a law that does not hold: both sides, the smallest arguments, what was allowed and what was seen."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

from combinators.errors import TapestryError, first_line, message
from laws.counterexamples.search import Failure
from laws.counterexamples.tokens import pack
from laws.errors import LawError
from laws.verdicts.verdict import STABILITY, Verdict

_WIDE = 1e-4  # of the difference left in float64, which has 29 bits more: below this it was rounding


def law_error(failure: Failure) -> LawError:
    """The error of a counterexample."""
    law, subject, verdict = failure.law, failure.subject, failure.verdict
    token = pack(law.name, subject.types, failure.recipe)
    headline = (
        f"LAW {law.name} FAILED  {subject.name}  {subject.types} jit {jax.default_backend()}  seed={failure.seed}"
    )
    shown = [
        f"{name} = {subject.show(kind, part)}" for (name, kind), part in zip(law.takes, failure.recipe, strict=True)
    ]
    if shown:
        shown[-1] += "   # minimal, built by operations" if law.takes[0][1] == "state" else "   # minimal"
    details = [*_sides(law.sides, verdict), *shown, *_reason(verdict)]
    details.append(f"source: {law.source}")
    text = message(headline, *details, remedy=f'Rerun: tp.laws.replay("{token}", {subject.name}, ...)')
    return LawError(text, law=law.name, token=token)


def _sides(formula: tuple[str, str], verdict: Verdict) -> list[str]:
    if verdict.error is not None:
        # The errors of the library end with their remedy.
        whole = isinstance(verdict.error, TapestryError)
        told = f"{type(verdict.error).__name__}: {verdict.error}" if whole else first_line(verdict.error)
        return [f"{formula[0]}  =  {formula[1]} cannot be computed", told]
    if verdict.sides is None:
        return []
    width = max(map(len, formula))
    return [f"{text:<{width}}  =  {show_value(side)}" for text, side in zip(formula, verdict.sides, strict=True)]


def _reason(verdict: Verdict) -> list[str]:
    leaf = f"leaf {verdict.leaf}: " if verdict.leaf else ""
    match verdict.kind:
        case "raised":
            return []
        case "structure":
            return [f"{leaf}{verdict.left} and {verdict.right} differ in structure"]
        case "range":
            return [f"{leaf}{_number(verdict.left)} and {_number(verdict.right)} differ in range, not by rounding"]
        case "exact":
            lines = [f"{leaf}{_number(verdict.left)} and {_number(verdict.right)} have to be equal"]
            return [*lines, "exact domain: nothing was rounded, so this is not rounding."]
        case "conditioned":
            times = verdict.difference / verdict.allowed if verdict.allowed else math.inf
            own = f" + {verdict.own:.2g} of its own steps" if verdict.own else ""
            bound = f"{STABILITY:.3g} * {verdict.depth:.3g} * u * scale{own} = {verdict.allowed:.3g}"
            leaf += "as a whole, " if verdict.whole else ""
            lines = [f"{leaf}|difference| = {verdict.difference:.6g} > {bound} ({times:.1e} times what is allowed)"]
            return [*lines, _wide_reason(verdict)]


def _wide_reason(verdict: Verdict) -> str:
    if verdict.wide is None:
        far = verdict.difference > 1e3 * verdict.allowed
        return f"float64 could not be asked, but this {'is far beyond' if far else 'may be'} rounding."
    if verdict.wide > _WIDE * verdict.difference:
        return "exact domain: fails too, so this is not rounding."
    left = f"exact domain: float64 leaves {verdict.wide:.3g} of it"
    return f"{left}, so this is rounding, but more than the conditioning explains."


def show_value(value: Any) -> str:
    """A side of a law as text; what is large is shown by its type and first entries."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {show_value(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        fields: tuple[str, ...] = getattr(value, "_fields", ())
        parts = [show_value(part) for part in value]
        named = [f"{field}={part}" for field, part in zip(fields, parts, strict=True)] if fields else parts
        return "(" + ", ".join(named) + ")"
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        array = np.asarray(value)
        if array.ndim == 0:
            return _number(array[()])
        if array.size <= 8:
            return np.array2string(array, separator=", ", precision=9).replace("\n", "")
        first = ", ".join(_number(entry) for entry in array.ravel()[:3])
        return f"{array.dtype}{list(array.shape)} [{first}, ...]"
    return str(value)


def _number(value: Any) -> str:
    return f"{float(value):.9g}" if np.asarray(value).dtype.kind in "fV" else str(value)
