"""A kernel's program, counted: FLOP, and the bytes that go to memory and back.

FLOP are counted as XLA's own cost analysis does (tests hold the two together), but for loops, whose turns XLA does not
count. Bytes follow from how XLA fuses: elementwise work runs with whatever reads it, a reduction with whatever makes
its operand; products, convolutions, sorts, gathers, loops and transforms run by themselves. What runs together reads
each value from memory once and writes its results.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax

from combinators.frozen import dataclass
from combinators.kernels.jaxprs import WRAPPERS, is_literal
from tapestry_jax.planning.folding.sent import nbytes
from tapestry_jax.planning.pricing.counts import Counts, added
from tapestry_jax.planning.pricing.traced import Traced, trace, trace_backward

Struct = jax.ShapeDtypeStruct
_CALLS = frozenset((*WRAPPERS, "remat", "remat2", "checkpoint", "custom_jvp_call", "custom_vjp_call", "custom_lin"))
_PRODUCTS = frozenset(("dot_general", "conv_general_dilated", "ragged_dot_general", "ragged_dot"))
_TRANSCENDENTAL = frozenset(
    (
        "exp", "exp2", "expm1", "log", "log1p", "logistic", "tanh", "sin", "cos", "tan", "sqrt", "rsqrt", "cbrt", "pow",
        "atan2", "erf", "erf_inv", "erfc", "lgamma", "digamma", "sinh", "cosh", "asin", "acos", "atan", "asinh",
        "acosh",
        "atanh",
    )
)  # fmt: skip
_APART = frozenset(
    (
        "sort", "top_k", "approx_top_k", "gather", "scatter", "scatter-add", "scatter_add", "scatter-mul",
        "scatter_mul",
        "scatter_min", "scatter_max", "scatter-min", "scatter-max", "fft", "cumsum", "cumprod", "cummax", "cummin",
        "cumlogsumexp", "reduce_window", "reduce_window_sum", "reduce_window_max", "reduce_window_min", "cholesky",
        "triangular_solve", "eigh", "qr", "lu", "svd", "pallas_call", "select_and_scatter_add", "while", "scan", "cond",
    )
)  # fmt: skip
_SAME = frozenset(
    (
        "reshape", "transpose", "squeeze", "expand_dims", "copy", "copy_p", "stop_gradient", "optimization_barrier",
        "pvary",
        "pcast", "bitcast_convert_type", "reduce_precision",
    )
)  # fmt: skip
"""What gives its operands as they are; compilers choose layouts in memory so that these move nothing."""
_MOVED = frozenset(
    (
        "broadcast_in_dim", "slice", "dynamic_slice", "dynamic_update_slice", "concatenate", "pad", "rev", "iota",
        "split",
        "convert_element_type", "real", "imag", "complex", "random_wrap", "random_unwrap",
    )
)  # fmt: skip
"""What computes nothing."""
_WIDTH = 128
"""Of the arrays in which a TPU multiplies matrices."""
_PASSES = 4.0
"""Prefixes on TPUs are products of blocks with a triangle, then what the blocks before add: written and read twice."""


@dataclass(frozen=True, eq=False)
class _Step:
    """An equation, its calls opened: `reads` and `makes` are variables of the outermost program that reaches."""

    name: str
    reads: tuple[Any, ...]
    makes: tuple[Any, ...]
    equation: Any


@dataclass(frozen=True, eq=False)
class _Program:
    steps: list[_Step]
    inputs: list[Any]
    outputs: list[Any]
    types: dict[Any, Any]
    platform: str = ""


def count(function: Callable[..., Sequence[Any]], structs: Sequence[Struct], platform: str = "") -> Counts:
    """The counts of a function of arrays of these types, which gives a list of arrays. Nothing is compiled.

    Args:
      function: from arrays to a list of arrays.
      structs: their types.
      platform: whose compiler fuses it, as lowering names it; `tpu` writes what others compute on the way.
    """
    return counted(trace(function, structs), platform)


def count_backward(
    function: Callable[..., Sequence[Any]], structs: Sequence[Struct], by: Sequence[int], platform: str = ""
) -> Counts:
    """What the backward pass of a function computes, given all that the forward pass has made.

    Args:
      function: from arrays to a list of arrays.
      structs: their types.
      by: the positions of the arrays whose gradients are wanted.
      platform: as for `count`.

    Returns:
      The counts of what depends on the cotangents of the results; what it reads that the forward pass has made, and
      the gradients that it writes, are `outer`, `reads` is empty.
    """
    return counted(trace_backward(function, structs, by), platform)


def counted(traced: Traced | None, platform: str = "") -> Counts:
    """The counts of a program: all of it; or of a backward pass, as `count_backward` has them; or of none."""
    if traced is None:
        return Counts()
    program = _opened(traced.jaxpr, platform)
    return _counted(program) if traced.cotangents is None else _counted_backward(program, traced.cotangents)


def _counted_backward(program: _Program, cotangents: int) -> Counts:
    reached = set(program.inputs[:cotangents])
    steps: list[_Step] = []
    for step in program.steps:
        if not reached.isdisjoint(step.reads):
            reached.update(step.makes)
            steps.append(step)
        elif not _is_root(step):
            # Elementwise work of the forward pass is done again where it is read: XLA fuses it there.
            steps.append(step)
    steps = _needed(steps, program.outputs)
    made = {key for step in steps for key in step.makes}
    given = list(dict.fromkeys(key for step in steps for key in step.reads if key not in made))
    found = _counted(_Program(steps, given, program.outputs, program.types, program.platform))
    read = sum(times * program.types[key] for key, times in zip(given, found.reads, strict=True))
    wrote = sum(program.types[key] for key in dict.fromkeys(program.outputs) if key in made)
    own = set(program.inputs)
    kept = sum(program.types[key] for key in given if key not in own)
    return replace(found, outer=read + wrote, kept=kept, reads=())


def _opened(jaxpr: Any, platform: str = "") -> _Program:
    """A program with its calls opened, without what nobody reads; `types` holds the bytes of values."""
    steps: list[_Step] = []
    sizes: dict[Any, Any] = {}
    inputs = list(jaxpr.invars)
    known: dict[Any, Any] = {}
    sizes.update((variable, nbytes(variable.aval)) for variable in inputs)
    outputs = _open(jaxpr, known, steps, sizes)
    return _Program(_needed(steps, outputs), inputs, outputs, sizes, platform)


def _needed(steps: Sequence[_Step], outputs: Sequence[Any]) -> list[_Step]:
    """The steps that outputs depend on."""
    wanted = {key for key in outputs if key is not None}
    kept: list[_Step] = []
    for step in reversed(steps):
        if not wanted.isdisjoint(step.makes):
            wanted.update(step.reads)
            kept.append(step)
    return kept[::-1]


def _open(jaxpr: Any, known: dict[Any, Any], steps: list[_Step], sizes: dict[Any, Any]) -> list[Any]:
    """Append the equations of a program; `known` says what its variables are outside. Returns the keys of its results.

    A program may be called several times, so what it makes gets new keys.
    """

    def key(atom: Any) -> Any:
        return None if is_literal(atom) else known.get(atom, atom)

    sizes.update((variable, nbytes(variable.aval)) for variable in jaxpr.constvars)
    for equation in jaxpr.eqns:
        inner = _called(equation)
        if inner is not None and len(inner.invars) == len(equation.invars):
            inside = dict(zip(inner.invars, map(key, equation.invars), strict=True))
            known.update(zip(equation.outvars, _open(inner, inside, steps, sizes), strict=True))
            continue
        moves = equation.primitive.name == "transpose" and _is_copied(equation, key(equation.invars[0]), steps)
        if equation.primitive.name in _SAME and len(equation.invars) == len(equation.outvars) and not moves:
            known.update(zip(equation.outvars, map(key, equation.invars), strict=True))
            continue
        made: list[Any] = []
        for variable in equation.outvars:
            known[variable] = fresh = object()
            sizes[fresh] = nbytes(variable.aval)
            made.append(fresh)
        reads = tuple(found for found in map(key, equation.invars) if found is not None)
        steps.append(_Step(equation.primitive.name, reads, tuple(made), equation))
    return [key(atom) for atom in jaxpr.outvars]


def _is_copied(equation: Any, key: Any, steps: Sequence[_Step]) -> bool:
    """Whether a transposition tears apart the dimensions of a product's result that one of its operands brings.

    Products write those of the one operand before or behind those of the other as is asked; another order is a copy.
    """
    maker = next((step for step in reversed(steps) if key in step.makes), None)
    if maker is None or maker.name != "dot_general":
        return False
    (left, _), (batch, _) = maker.equation.params["dimension_numbers"]
    shape = equation.invars[0].aval.shape
    rows = len(maker.equation.invars[0].aval.shape) - len(left) - len(batch)
    of = [0] * len(batch) + [1] * rows + [2] * (len(shape) - len(batch) - rows)
    order = [axis for axis in equation.params["permutation"] if shape[axis] > 1]
    parts = [part for part, _ in itertools.groupby(of[axis] for axis in order)]
    inside = all([a for a in order if of[a] == part] == sorted(a for a in order if of[a] == part) for part in parts)
    return not inside or len(parts) > len(set(parts))


def _called(equation: Any) -> Any:
    if equation.primitive.name not in _CALLS:
        return None
    inner = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
    return getattr(inner, "jaxpr", inner)


def _counted(program: _Program) -> Counts:
    total = Counts()
    for step in program.steps:
        total = added(total, _arithmetic(step, program.platform))
    reads, inner, largest, repeated, kernels = _memory(program)
    kinds = _kinds(program)
    heads = tuple("given" if key is None else kinds.get(key, "given") for key in program.outputs)
    return replace(
        total,
        inner=total.inner + inner,
        largest=max(total.largest, largest),
        repeated=total.repeated + repeated,
        reads=reads,
        heads=heads,
        kernels=total.kernels + kernels,
    )


def _kinds(program: _Program) -> dict[Any, str]:
    """What makes every value."""
    kinds: dict[Any, str] = {}
    for step in program.steps:
        if step.name in _PRODUCTS:
            kind = "product"
        elif step.name in _APART or step.name == "transpose":
            kind = "apart"
        elif _is_reduction(step.name):
            kind = "reduced"
        elif step.name in _MOVED:
            # What is only moved is still what it was.
            kind = next((kinds[key] for key in step.reads if key in kinds), "given")
        else:
            kind = "fused"
        kinds.update(dict.fromkeys(step.makes, kind))
    return kinds


def _memory(program: _Program) -> tuple[tuple[float, ...], float, float, float, int]:
    """How often inputs are read, bytes that values inside move, the largest of them, work done again, kernels."""
    outputs = {key for key in program.outputs if key is not None}
    written = _written(program)
    stored = outputs.union(written, *(step.makes for step in program.steps if _is_root(step)))
    # What every value is computed from, of what is in memory, by work that is fused with its readers; and that work.
    below: dict[Any, frozenset[Any]] = {key: frozenset((key,)) for key in program.inputs}
    work: dict[Any, frozenset[int]] = {}
    groups: dict[Any, tuple[set[Any], set[int]]] = {}
    for number, step in enumerate(program.steps):
        found = frozenset().union(*(below.get(key, frozenset((key,))) for key in step.reads))
        fused = frozenset().union(*(work.get(key, frozenset()) for key in step.reads))
        if _is_root(step):
            # Reductions of the same values run together.
            group = ("reduced", found) if _is_reduction(step.name) else number
            below.update((key, frozenset((key,))) for key in step.makes)
        else:
            fused |= {number}
            apart = not written.isdisjoint(step.makes)
            below.update((key, frozenset((key,)) if apart else found) for key in step.makes)
            work.update((key, frozenset[int]() if apart else fused) for key in step.makes)
            group = ("elementwise", found)
        if _is_root(step) or not outputs.isdisjoint(step.makes) or not written.isdisjoint(step.makes):
            values, steps = groups.setdefault(group, (set(), set()))
            values.update(found)
            steps.update(fused)
    times = Counter(key for values, _ in groups.values() for key in values)
    again = Counter(number for _, steps in groups.values() for number in steps)
    repeated = sum((count - 1) * _weight(program.steps[number]) for number, count in again.items() if count > 1)
    reads = tuple(float(times.get(key, 0)) for key in program.inputs)
    inside = stored - set(program.inputs)
    inner = sum(program.types[key] * ((key not in outputs) + times.get(key, 0)) for key in inside)
    inner += sum(_PASSES * program.types[step.reads[0]] for step in program.steps if _is_prefix(step, program))
    largest = max((program.types[key] for key in inside if key not in outputs), default=0)
    return reads, float(inner), float(largest), repeated, len(groups)


def _written(program: _Program) -> set[Any]:
    """What TPUs write although it is elementwise work: reductions of several values at once read all from memory."""
    if program.platform != "tpu":
        return set()
    several = (step for step in program.steps if step.name == "reduce" and len(step.makes) > 1)
    read = {key for step in several for key in step.reads}
    return read.intersection(*[{key for step in program.steps if not _is_root(step) for key in step.makes}])


def _is_prefix(step: _Step, program: _Program) -> bool:
    return program.platform == "tpu" and step.name.startswith("cum") and bool(step.reads)


def _weight(step: _Step) -> float:
    """Operations of an elementwise step, a transcendental as four."""
    counts = _arithmetic(step)
    return counts.other + 4.0 * counts.transcendental


def _is_root(step: _Step) -> bool:
    """Whether what a step makes goes to memory before anybody reads it."""
    return step.name in _PRODUCTS or step.name in _APART or step.name == "transpose" or _is_reduction(step.name)


def _is_reduction(name: str) -> bool:
    return name in ("argmax", "argmin", "reduce") or (name.startswith("reduce_") and name != "reduce_precision")


def _arithmetic(step: _Step, platform: str = "") -> Counts:
    """FLOP of one equation, with all turns of a loop, and what is inside of it."""
    name, equation = step.name, step.equation
    made = sum(math.prod(variable.aval.shape) for variable in equation.outvars)
    read = max((math.prod(getattr(atom.aval, "shape", ())) for atom in equation.invars), default=0)
    if name == "dot_general":
        contracted = _contracted(equation)
        found = _product(equation, 2.0 * made * contracted)
        return replace(found, idle=_idle(found, contracted, _sides(equation)) if platform == "tpu" else 0.0)
    if name == "conv_general_dilated":
        found = _product(equation, 2.0 * made * _kernel_cells(equation))
        return replace(found, idle=_idle(found, *_features(equation)) if platform == "tpu" else 0.0)
    if name in _PRODUCTS:
        return _product(equation, 2.0 * made * equation.invars[0].aval.shape[-1])
    if name == "fft":
        lengths = equation.params["fft_lengths"]
        cells = max(made, read)
        return Counts(other=8.0 * cells * math.prod(math.ceil(math.log2(n)) if n > 1 else 0 for n in lengths))
    if name == "scan":
        return _loop(equation.params["jaxpr"], float(equation.params["length"]), platform)
    if name == "while":
        # How often it turns, no type says: once.
        return _loop(equation.params["body_jaxpr"], 1.0, platform)
    if name == "cond":
        branches = [_counted(_opened(branch.jaxpr, platform)) for branch in equation.params["branches"]]
        return _inside(max(branches, key=lambda counts: (counts.flops, counts.inner)), 1.0)
    if name in _MOVED or name.startswith("random_bits") or name == "pallas_call":
        return Counts()
    if name in _TRANSCENDENTAL:
        return Counts(transcendental=float(made))
    if _is_reduction(name) or name in ("reduce_window", "reduce_window_sum", "reduce_window_max", "reduce_window_min"):
        return Counts(other=float(read))
    if name in ("sort", "top_k", "approx_top_k"):
        return Counts(other=read * max(math.log2(max(read, 2)), 1.0))
    if name in ("gather",):
        return Counts()
    if name.startswith("scatter"):
        updates = math.prod(equation.invars[-1].aval.shape)
        return Counts(other=float(updates) if name not in ("scatter",) else 0.0)
    if name == "integer_pow":
        return Counts(other=made * float(max(abs(equation.params["y"]).bit_length(), 1)))
    return Counts(other=float(made))


def _product(equation: Any, flops: float) -> Counts:
    kinds = [atom.aval.dtype for atom in equation.invars[:2]]
    widest = max(kinds, key=lambda kind: kind.itemsize)
    if widest.kind == "c":
        # Four real products and their sums.
        return Counts(products=((f"float{widest.itemsize * 4}", 4 * flops),))
    return Counts(products=((widest.name, flops),))


def _idle(counts: Counts, contracted: int, sides: tuple[int, int]) -> float:
    """What arrays of 128 x 128 could do beside: one of them holds a piece of an operand, the other one streams by."""
    waste = _filled(contracted) * min(_filled(side) for side in sides)
    return (waste - 1.0) * sum(flops for _, flops in counts.products)


def _filled(size: int) -> float:
    """By how much a size grows up to the next multiple of the arrays' width."""
    return math.ceil(size / _WIDTH) * _WIDTH / size if size else 1.0


def _sides(equation: Any) -> tuple[int, int]:
    """The rows that the one and the other operand of a product bring."""
    (left, _), (batch, _) = equation.params["dimension_numbers"]
    shapes = [atom.aval.shape for atom in equation.invars[:2]]
    shared = math.prod(shapes[0][axis] for axis in (*left, *batch))
    rows, columns = (math.prod(shape) // max(shared, 1) for shape in shapes)
    return rows, columns


def _features(equation: Any) -> tuple[int, tuple[int, int]]:
    """The input features of a convolution's group, which are contracted, and its output features."""
    shape, spec = equation.invars[1].aval.shape, equation.params["dimension_numbers"].rhs_spec
    return shape[spec[1]], (shape[spec[0]], shape[spec[0]])


def _contracted(equation: Any) -> int:
    (left, _), _ = equation.params["dimension_numbers"]
    return math.prod(equation.invars[0].aval.shape[axis] for axis in left)


def _kernel_cells(equation: Any) -> int:
    """The products of one cell of a convolution's result: cells of the window times input features of a group."""
    shape = equation.invars[1].aval.shape
    spec = equation.params["dimension_numbers"].rhs_spec
    return math.prod(size for axis, size in enumerate(shape) if axis != spec[0])


def _loop(body: Any, turns: float, platform: str) -> Counts:
    return _inside(_counted(_opened(body.jaxpr, platform)), turns, body.jaxpr)


def _inside(counts: Counts, times: float, body: Any = None) -> Counts:
    """The counts of a program inside: what its turns read and write is not fused with anything outside."""
    moved = 0.0
    if body is not None:
        moved = sum(times * nbytes(variable.aval) for variable, times in zip(body.invars, counts.reads, strict=True))
        moved += sum(nbytes(atom.aval) for atom in body.outvars if not is_literal(atom))
    return added(Counts(), replace(counts, inner=counts.inner + moved, kernels=max(counts.kernels, 1)), times)
