"""Which functions act cell by cell: read off their jaxpr, so that `tp.Map(jax.nn.gelu)` needs no signature.

A function is elementwise when every primitive that its results depend on computes each cell from the same cell of its
operands, or spreads a scalar. The list below is of what is known to do so; everything else counts as mixing cells, so a
primitive that JAX adds later asks for a signature and is never cut wrongly.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from combinators.errors import KernelError, message
from combinators.frozen import dataclass
from combinators.kernels.jaxprs import is_literal, programs_inside
from combinators.kernels.kernel import short_name
from combinators.kernels.remedy import SPREADING, Offence, Traced, explain_offences, offending_axes
from combinators.settings import remembered

_ARITHMETIC = """
    abs add add_any and clamp clz complex conj div eq eq_to ge gt imag integer_pow le le_to lt lt_to max min mul mulhi
    ne neg nextafter not or population_count pow real rem select_n shift_left shift_right_arithmetic
    shift_right_logical sign square sub xor
"""
_CONVERSIONS = "bitcast_convert_type ceil convert_element_type floor is_finite reduce_precision round"
_FUNCTIONS = """
    acos acosh asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt cos cosh digamma erf erf_inv erfc exp exp2 expm1
    igamma igamma_grad_a igammac lgamma log log1p log2 logistic one_minus_square polygamma polynomial
    regularized_incomplete_beta rsqrt sin sinh sqrt tan tanh zeta
"""
# What leaves values as they are, and `platform_index`, a number that no operand enters.
_NEUTRAL = """
    copy copy_p name optimization_barrier pcast platform_index pvary reduced_vary_cast reduced_vary_cast_p stop_gradient
    vary_unreduced_cast vary_unreduced_cast_p zeros_like
"""
CELLWISE = frozenset((_ARITHMETIC + _CONVERSIONS + _FUNCTIONS + _NEUTRAL).split())
# These compute what the jaxprs in their parameters say.
_CALL_NAMES = """
    call checkpoint closed_call composite cond core_call custom_jvp_call custom_jvp_call_jaxpr custom_vjp_call
    custom_vjp_call_jaxpr custom_vmap_call eval_jaxpr jit pjit remat remat2 remat_opt
"""
CALLS = frozenset(_CALL_NAMES.split())


@dataclass(frozen=True)
class _Verdict:
    """What a trace showed. Both texts are None where the function is elementwise.

    Attributes:
      problem: why it is not elementwise, and the remedy.
      failure: what the function raised when it was traced.
    """

    problem: tuple[str, str] | None = None
    failure: str | None = None


def check_elementwise(fn: Callable[..., Any], types: Sequence[jax.ShapeDtypeStruct] | None, where: str) -> bool:
    """Check that a function acts cell by cell, from the jaxpr that it traces to.

    The function is traced on operands of one small shape whose sizes all differ. Dead code does not count.

    Args:
      fn: the function.
      types: the types of its operands; their ranks and dtypes are used. None where they are not known yet: then its
        required positional parameters are taken to be its operands, of float32 and rank 2.
      where: the operation that takes it, as the error names it: `"tp.Map(softmax)"`.

    Returns:
      True where it is elementwise. False where that cannot be decided without types: the number of operands cannot be
      told, or it cannot be traced with float32.

    Raises:
      KernelError: when it mixes cells, draws random numbers or has a side effect, with the signature to give instead;
        or when it cannot be traced with the types that were given.
    """
    if types is None:
        arity = required_operands(fn)
        if not arity:
            return False
        operands: tuple[tuple[int, Any], ...] = ((2, np.dtype(np.float32)),) * arity
    else:
        operands = tuple((len(item.shape), item.dtype) for item in types)
    try:
        verdict = _cached_judgement(fn, operands)
    except TypeError:  # not hashable
        verdict = _judge(fn, operands)
    if verdict.problem is not None:
        reason, remedy = verdict.problem
        raise KernelError(message(f"{where} is not elementwise: {reason}.", remedy=remedy))
    if verdict.failure is not None and types is not None:
        structs = _structs(operands, _sizes(operands))
        shapes = ", ".join(f"{item.dtype}[{','.join(map(str, item.shape))}]" for item in structs)
        details = (f"tried on {shapes}, since a kernel has to be right for a block of any size", verdict.failure)
        remedy = f'Give it a signature, such as tp.Map({short_name(fn)}, "... [c] -> ... [c]").'
        raise KernelError(message(f"{where} cannot be traced as an elementwise kernel.", *details, remedy=remedy))
    return verdict.failure is None


def required_operands(fn: Callable[..., Any]) -> int | None:
    """Count the operands that a function cannot do without.

    Args:
      fn: the function.

    Returns:
      The number of its positional parameters without a default; None where that cannot be told.
    """
    if isinstance(count := getattr(fn, "nin", None), int):  # a ufunc takes `*args`
        return count
    parameters = _parameters(fn)
    required = [item for item in parameters if item.default is item.empty]
    if not parameters or any(item.kind in (item.VAR_POSITIONAL, item.KEYWORD_ONLY) for item in required):
        return None
    return sum(item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD) for item in required)


def exact_operands(fn: Callable[..., Any]) -> int | None:
    """Count the operands that a function takes.

    Args:
      fn: the function.

    Returns:
      As `required_operands`, but None where an optional parameter may be one more operand: in
      `jnp.where(condition, x=None, y=None)`, not in `jax.nn.gelu(x, approximate=True)`.
    """
    positional = [p for p in _parameters(fn) if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return None if any(p.default is None for p in positional) else required_operands(fn)


def _parameters(fn: Callable[..., Any]) -> list[inspect.Parameter]:
    """List the parameters of a function; none where it does not tell."""
    if isinstance(getattr(fn, "nin", None), int):  # the options of a ufunc are no operands
        return []
    try:
        return list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return []


def _judge(fn: Callable[..., Any], operands: tuple[tuple[int, Any], ...]) -> _Verdict:
    """Trace a function and read the verdict off its jaxpr."""
    sizes = _sizes(operands)
    try:
        closed, result = _trace(fn, operands, sizes)
    except Exception as error:  # noqa: BLE001 - the function is the user's and may raise anything
        return _judge_square(fn, operands, error)
    problem = _problem(fn, operands, sizes, closed, result)
    if problem is None and _looks_at_sizes(fn, operands, sizes, closed):
        problem = (
            "it depends on the size of its block, which a plan chooses",
            "Pass the size as an operand, or give it a signature that keeps those axes whole: "
            f'tp.Map({short_name(fn)}, "... [c] -> ... [c]").',
        )
    return _Verdict(problem=problem)


def _looks_at_sizes(
    fn: Callable[..., Any], operands: tuple[tuple[int, Any], ...], sizes: tuple[int, ...], closed: Any
) -> bool:
    """Whether a block of another size is computed with other numbers, as in `x / x.shape[0]`."""
    try:
        other, _ = _trace(fn, operands, tuple(size + 8 for size in sizes))
    except Exception:  # noqa: BLE001 - works on some sizes only
        return True
    return _numbers(closed.jaxpr) != _numbers(other.jaxpr)


def _numbers(jaxpr: Any) -> list[Any]:
    """The primitives and the literals of a program, in order, inner programs included."""
    found: list[Any] = []
    for equation in jaxpr.eqns:
        found.append(equation.primitive.name)
        found.extend(repr(atom.val) for atom in equation.invars if is_literal(atom))
        for inner in programs_inside(equation):
            found.extend(_numbers(getattr(inner, "jaxpr", inner)))
    return found


def _judge_square(fn: Callable[..., Any], operands: tuple[tuple[int, Any], ...], error: Exception) -> _Verdict:
    """Trace on equal sizes what fails on unequal ones: the jaxpr of a matrix product says more than its exception."""
    sizes = (4,) * len(_sizes(operands))
    try:
        closed, result = _trace(fn, operands, sizes)
    except Exception:  # noqa: BLE001 - the first exception tells more
        problem = None
    else:
        problem = _problem(fn, operands, sizes, closed, result)
    return _Verdict(problem=problem, failure=f"{type(error).__name__}: {error}".partition("\n")[0][:200])


_cached_judgement = remembered(maxsize=512)(_judge)


def _sizes(operands: tuple[tuple[int, Any], ...]) -> tuple[int, ...]:
    """Give the shape to trace with: unequal sizes tell axes apart, even ones let a function halve them."""
    rank = max((rank for rank, _ in operands), default=0)
    return tuple(4 + 2 * axis for axis in range(rank))


def _trace(fn: Callable[..., Any], operands: tuple[tuple[int, Any], ...], sizes: tuple[int, ...]) -> tuple[Any, Any]:
    """Trace to a closed jaxpr and the types of the results."""
    # The lambda lets functions through that cannot be hashed.
    return jax.make_jaxpr(lambda *blocks: fn(*blocks), return_shape=True)(*_structs(operands, sizes))


def _structs(operands: tuple[tuple[int, Any], ...], sizes: tuple[int, ...]) -> list[jax.ShapeDtypeStruct]:
    """Give the types to trace with; operands of lower rank are aligned from the right."""
    return [jax.ShapeDtypeStruct(sizes[len(sizes) - rank :], dtype) for rank, dtype in operands]


def _problem(
    fn: Callable[..., Any], operands: tuple[tuple[int, Any], ...], sizes: tuple[int, ...], closed: Any, result: Any
) -> tuple[str, str] | None:
    """Say why a traced function is not elementwise, and what to do; None where it is."""
    shapes = [tuple(getattr(leaf, "shape", (-1,))) for leaf in jax.tree.leaves(result)]  # a token has no shape
    traced = Traced(fn, [rank for rank, _ in operands], sizes, shapes)
    offences = _offences(closed, sizes)
    if not offences and any(shape != sizes for shape in shapes):
        shape = next(shape for shape in shapes if shape != sizes)
        offences = [Offence("", f"it gives a result of shape {shape} for operands of shape {sizes}", frozenset())]
    return explain_offences(traced, offences) if offences else None


def _offences(closed: Any, sizes: tuple[int, ...]) -> list[Offence]:
    """Collect what the results of a closed jaxpr depend on that is not cell by cell, in program order."""
    jaxpr, constants = getattr(closed, "jaxpr", closed), getattr(closed, "consts", ())
    live = {id(variable) for variable in jaxpr.outvars}
    found: list[list[Offence]] = []
    for equation in reversed(jaxpr.eqns):
        if equation.effects or any(id(variable) in live for variable in equation.outvars):
            live.update(id(variable) for variable in equation.invars)
            found.append(_offences_of(equation, sizes))
    for variable, constant in zip(jaxpr.constvars, constants, strict=False):
        if id(variable) in live and np.size(constant) > 1:
            shape = np.shape(constant)
            text = f"it holds a constant array of shape {shape}, whose cells differ by their position"
            found.append([Offence("", text, offending_axes(sizes, shape, range(len(shape))))])
    return [offence for group in reversed(found) for offence in group]


def _offences_of(equation: Any, sizes: tuple[int, ...]) -> list[Offence]:
    """Collect what one equation does that is not cell by cell."""
    name: str = equation.primitive.name
    if equation.effects:
        return [Offence(name, f"it has a side effect ({name})", frozenset())]
    if name in CALLS and (inner := list(programs_inside(equation))):
        return [offence for jaxpr in inner for offence in _offences(jaxpr, sizes)]
    shapes = [tuple(variable.aval.shape) for variable in equation.invars if hasattr(variable.aval, "shape")]
    results = [tuple(variable.aval.shape) for variable in equation.outvars if hasattr(variable.aval, "shape")]
    if name in {"reshape", *SPREADING} and (math.prod(shapes[0]) == 1 or shapes[0] == results[0]):
        return []
    if name in CELLWISE and (name != "bitcast_convert_type" or shapes == results):
        return []
    return [Offence.of(name, equation.params, shapes, results, sizes)]
