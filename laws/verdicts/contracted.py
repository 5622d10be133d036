"""Which single steps of a program give one number, however often a compiler computes them.

By IEEE 754 a sum, a product, a quotient or a root of floats is one float, whoever computes it. A compiler may round a
product not at all, though, where a sum takes it (a fused multiply-add), and where others use it as well it does so for
one use and not for another. So a product is one number unless a sum takes it, and a sum is unless it takes a product
that is used elsewhere, too. Other functions are computed by one formula, wherever they stand; but exponentials and
logarithms are not: a vector and what is left of it compute them by unlike steps (docs/design/numerics.md). Neither are
folds, which may be made in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

from combinators.kernels.jaxprs import is_literal, programs_inside

_SUMS = frozenset(("add", "add_any", "sub"))
_PRODUCTS = frozenset(("mul", "div", "integer_pow", "square"))
_FUNCTIONS_NAMES = """
    acos acosh asin asinh atan atan2 atanh cbrt cos cosh digamma erf erf_inv erfc exp2 expm1 lgamma log1p logistic pow
    rem rsqrt sin sinh sqrt tan tanh
"""
_FUNCTIONS = frozenset(_FUNCTIONS_NAMES.split())
# Behind these stands a number that is no product, and no sum takes what is before them.
_PLAIN_NAMES = """
    abs argmax argmin ceil clamp cummax cummin eq floor ge gt is_finite le lt max min ne reduce_max reduce_min
    reduce_window_max reduce_window_min round sign sort sqrt
"""
_PLAIN = frozenset(_PLAIN_NAMES.split())
_MOVING_NAMES = """
    broadcast_in_dim concatenate convert_element_type copy copy_p dynamic_slice expand_dims gather neg pad reshape rev
    select_n slice split squeeze stop_gradient transpose
"""
_MOVING = frozenset(_MOVING_NAMES.split())

MANY = 2
Use = tuple[int, bool]
"""How often a value is used, or all that moves it: once, or `MANY` times; and whether a sum takes it."""
Known = tuple[tuple[int, ...], tuple[Use, ...]]
"""Of each argument of a jaxpr how often it is used if it may be a product, else 0; and the use of each result."""
Inside = Callable[[Any], Any]
"""An equation -> the jaxpr that it calls, if it does nothing else; else None."""


@final
@dataclass(frozen=True)
class Flow:
    """What of a jaxpr is a product, and how it is used.

    Attributes:
      products: of variables that are products, moved or not, or may be -> how often they are used; no others.
      uses: variable -> how often, and whether a sum takes it.
    """

    products: dict[Any, int]
    uses: dict[Any, Use]

    def is_one_number(self, equation: Any) -> bool:
        """Whether a step gives the same number wherever, and however often, it is computed."""
        name = equation.primitive.name
        if name in _SUMS:
            return MANY not in _grades(equation.invars, self.products)
        loose = any(use == (MANY, True) for use in _uses_of(equation.outvars, self.uses))
        return name in _FUNCTIONS or (name in _PRODUCTS and not loose)

    def into(self, equation: Any) -> Known:
        """What is known of the operands of an equation, and of its results."""
        return _grades(equation.invars, self.products), _uses_of(equation.outvars, self.uses)


@final
class Flows:
    """Follows the equations of jaxprs, those of one that is called often once.

    Args:
      inside: which of them are calls.
    """

    def __init__(self, inside: Inside) -> None:
        self._inside = inside
        self._products: dict[Any, dict[Any, int]] = {}
        self._used: dict[Any, dict[Any, Use]] = {}

    def of(self, jaxpr: Any, known: Known) -> Flow:
        """The flow of a jaxpr of whose arguments and results so much is known; its constants may be anything."""
        return Flow(self._made(jaxpr, known), self._uses(jaxpr, known[1]))

    def _made(self, jaxpr: Any, known: Known) -> dict[Any, int]:
        key = id(jaxpr), known
        if key not in self._products:
            uses, found = self._uses(jaxpr, known[1]), dict.fromkeys(jaxpr.constvars, MANY)
            found.update(_grade(uses, jaxpr.invars, known[0]))
            for equation in jaxpr.eqns:
                found.update(_grade(uses, equation.outvars, self._made_by(equation, Flow(found, uses))))
            self._products[key] = found
        return self._products[key]

    def _made_by(self, equation: Any, flow: Flow) -> tuple[int, ...]:
        name, inner = equation.primitive.name, self._inside(equation)
        if inner is not None:
            return _grades(inner.outvars, self._made(inner, flow.into(equation)))
        if name in _SUMS or name in _PLAIN:
            return (0,) * len(equation.outvars)
        moved = max(_grades(equation.invars, flow.products), default=0)
        return (moved if name in _MOVING else 1,) * len(equation.outvars)

    def _uses(self, jaxpr: Any, results: tuple[Use, ...]) -> dict[Any, Use]:
        key = id(jaxpr), results
        if key not in self._used:
            found: dict[Any, Use] = {}
            _use(found, jaxpr.outvars, results)
            for equation in reversed(jaxpr.eqns):
                _use(found, equation.invars, self._used_by(equation, _uses_of(equation.outvars, found)))
            self._used[key] = found
        return self._used[key]

    def _used_by(self, equation: Any, after: tuple[Use, ...]) -> tuple[Use, ...]:
        name, inner = equation.primitive.name, self._inside(equation)
        if inner is not None:
            return _uses_of(inner.invars, self._uses(inner, after))
        if name in _MOVING:
            use = max(each for each, _ in after), any(summed for _, summed in after)
        else:
            use = MANY if any(programs_inside(equation)) else 1, name not in _PRODUCTS and name not in _PLAIN
        return (use,) * len(equation.invars)


def unknown(jaxpr: Any) -> Known:
    """Where anything may stand before a jaxpr, and behind it."""
    return (MANY,) * len(jaxpr.invars), ((MANY, True),) * len(jaxpr.outvars)


def alone(jaxpr: Any) -> Known:
    """Where a jaxpr is a whole program: arguments are arrays, and so are results."""
    return (0,) * len(jaxpr.invars), ((1, False),) * len(jaxpr.outvars)


def _grade(uses: dict[Any, Use], variables: Sequence[Any], products: tuple[int, ...]) -> dict[Any, int]:
    """Of the products among variables how often they are used, or what they move is."""
    used = zip(variables, products, _uses_of(variables, uses), strict=True)
    return {variable: max(each, use[0]) for variable, each, use in used if each}


def _grades(atoms: Iterable[Any], products: dict[Any, int]) -> tuple[int, ...]:
    """Literals are no products."""
    return tuple(0 if is_literal(atom) else products.get(atom, 0) for atom in atoms)


def _uses_of(atoms: Iterable[Any], uses: dict[Any, Use]) -> tuple[Use, ...]:
    return tuple(_UNUSED if is_literal(atom) else uses.get(atom, _UNUSED) for atom in atoms)


def _use(found: dict[Any, Use], atoms: Iterable[Any], uses: tuple[Use, ...]) -> None:
    for atom, use in zip(atoms, uses, strict=True):
        if not is_literal(atom):
            before = found.get(atom, _UNUSED)
            found[atom] = min(before[0] + use[0], MANY), before[1] or use[1]


_UNUSED: Use = (0, False)
