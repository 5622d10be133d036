"""What to say of a kernel that mixes cells: along which axes, and the signature that declares it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from combinators.frozen import dataclass
from combinators.kernels.kernel import short_name
from combinators.kernels.names import public_name

_RANDOM = ("random_", "threefry", "philox", "rng_")
_CALLBACKS = ("pure_callback", "io_callback", "debug_callback", "debug_print", "ffi_call")
# These place cells at new positions and keep the axes that they have; where there is only one cell they are harmless.
SPREADING = frozenset({"broadcast_in_dim", "broadcast_to", "expand_dims", "squeeze"})
_RESIZING = frozenset({"concatenate", "dynamic_slice", "dynamic_update_slice", "pad", "slice", "split"})
_ALIASES = {"jax.numpy": "jnp", "numpy": "np"}


@dataclass(frozen=True)
class Offence:
    """One thing that a traced function does that is not cell by cell.

    Attributes:
      primitive: the name of the JAX primitive; empty where it is not one.
      text: what the function does, as a clause: `"it uses reduce_max along the last axis"`.
      axes: the axes of the traced shape that it mixes; empty where they cannot be told.
    """

    primitive: str
    text: str
    axes: frozenset[int]

    @classmethod
    def of(
        cls,
        name: str,
        params: dict[str, Any],
        shapes: Sequence[tuple[int, ...]],
        results: Sequence[tuple[int, ...]],
        sizes: tuple[int, ...],
    ) -> Offence:
        """Describe an equation.

        Args:
          name: the name of its primitive.
          params: the parameters of the primitive.
          shapes: the shapes of its operands.
          results: the shapes of its results.
          sizes: the shape that the function is traced with.
        """
        if name.startswith(_RANDOM):
            return cls(name, f"it draws random numbers ({name})", frozenset())
        if name in _CALLBACKS:
            return cls(name, f"it calls back into Python ({name})", frozenset())
        shape = (*shapes, *results)[0] if shapes or results else ()
        axes = offending_axes(sizes, shape, _mixed(name, params, shape, results))
        return cls(name, f"it uses {name}{_along(axes, len(sizes))}", axes)


@dataclass(frozen=True)
class Traced:
    """A function and the shapes that it was traced with.

    Attributes:
      fn: the function.
      ranks: the rank of each operand.
      sizes: the shape of the operands of the highest rank.
      results: the shapes of the results.
    """

    fn: Callable[..., Any]
    ranks: Sequence[int]
    sizes: tuple[int, ...]
    results: Sequence[tuple[int, ...]]


def explain_offences(traced: Traced, offences: Sequence[Offence]) -> tuple[str, str]:
    """Say why a function is not elementwise, and what to do.

    Args:
      traced: the function.
      offences: what it does that is not cell by cell, in program order; at least one.

    Returns:
      The reason, a clause, and the remedy, a sentence.
    """
    first = offences[0]
    if first.primitive.startswith(_RANDOM):
        return first.text, "Draw with tp.random, which counts cells, or take the numbers as an operand."
    if first.primitive in _CALLBACKS or "side effect" in first.text:
        return first.text, "Take it out of the kernel."
    name = _spelled(traced.fn)
    if "dot_general" in first.primitive and len(traced.ranks) > 1:
        if list(traced.ranks) == [2, 2]:
            return first.text, f'A contraction folds: tp.Reduce({name}, "i k, k n -> i n", tp.monoids.Sum)'
        return first.text, "A contraction folds: write it with tp.einsum, which brings its own kernel."
    # A total is spread out again after it was made: only what made it says which axes are whole.
    mixing = [offence.axes for offence in offences if offence.primitive not in SPREADING] or [offences[0].axes]
    axes = frozenset[int]().union(*mixing) if all(mixing) else frozenset(range(len(traced.sizes)))
    return first.text, f'Give it a signature: tp.Map({name}, "{_signature(traced, axes)}")'


def offending_axes(sizes: tuple[int, ...], shape: tuple[int, ...], axes: Iterable[int]) -> frozenset[int]:
    """Find the axes of the traced shape that axes of an intermediate array stand for.

    Args:
      sizes: the traced shape.
      shape: the shape of the intermediate array.
      axes: axes of that array.

    Returns:
      The axes of `sizes`, told by their size where sizes differ and by position where the shape is the traced one;
      empty where one of them cannot be told.
    """
    found: set[int] = set()
    for axis in axes:
        if shape == sizes:
            found.add(axis)
        elif sizes.count(shape[axis]) == 1:
            found.add(sizes.index(shape[axis]))
        else:
            return frozenset()
    return frozenset(found)


def _mixed(name: str, params: dict[str, Any], shape: tuple[int, ...], results: Sequence[tuple[int, ...]]) -> list[int]:
    """Find the axes of its first operand along which a primitive mixes cells; none if unknown."""
    rank = len(shape)
    for key in ("axes", "axis", "dimension"):
        found: Any = params.get(key)
        axes = [axis for axis in (found if isinstance(found, tuple) else (found,)) if isinstance(axis, int)]
        if axes:
            return [axis % rank for axis in axes] if rank else []
    if name == "rev":
        return list(params["dimensions"])
    if name == "transpose":
        return [axis for axis, source in enumerate(params["permutation"]) if axis != source]
    if name == "fft":
        return list(range(rank - len(params["fft_lengths"]), rank))
    if name in SPREADING:
        return [axis for axis in range(rank) if shape[axis] > 1]
    if name in _RESIZING and results and len(results[0]) == rank:
        return [axis for axis in range(rank) if shape[axis] != results[0][axis]]
    return []


def _along(axes: frozenset[int], rank: int) -> str:
    """Say along which axes, as the end of a clause."""
    if not axes:
        return ""
    if len(axes) == rank > 1:
        return " along all axes"
    if len(axes) == 1:
        (axis,) = axes
        return " along the last axis" if axis == rank - 1 else f" along axis {axis}"
    return " along axes " + " and ".join(map(str, sorted(axes)))


def _signature(traced: Traced, axes: frozenset[int]) -> str:
    """Write the signature under which a function that mixes cells along these axes is a map."""
    rank = len(traced.sizes)
    letters = {0: (), 1: ("c",), 2: ("r", "c")}.get(rank) or tuple(f"a{axis}" for axis in range(rank))
    names = [f"[{name}]" if axis in axes else name for axis, name in enumerate(letters)]
    last_only = axes == frozenset({rank - 1}) and all(rank == other for other in traced.ranks)
    if last_only and all(shape[: rank - 1] == traced.sizes[:-1] for shape in traced.results):
        operands = ["... [c]" for _ in traced.ranks]
        tails = [_result_axes(shape[rank - 1 :], traced.sizes[-1:], ["[c]"]) for shape in traced.results]
        results = [f"... {tail}".strip() for tail in tails]
    else:
        operands = [" ".join(names[rank - other :]) for other in traced.ranks]
        results = [_result_axes(shape, traced.sizes, names) for shape in traced.results]
    return f"{', '.join(operands)} -> {', '.join(results)}".strip()


def _result_axes(shape: tuple[int, ...], sizes: tuple[int, ...], names: Sequence[str]) -> str:
    """Name the axes of a result: those of the operands where it has their sizes, new whole ones otherwise."""
    new = iter("defghijklmnop")
    found: list[str] = []
    for position, size in enumerate(shape):
        matches = [axis for axis in range(len(sizes)) if sizes[axis] == size]
        axis = position if position in matches else matches[0] if matches else None
        taken = axis is not None and names[axis] in found
        found.append(f"[{next(new)}]" if axis is None or taken else names[axis])
    return " ".join(found)


def _spelled(fn: Callable[..., Any]) -> str:
    """Spell a function as its user does: `jax.nn.softmax`, `jnp.sort`."""
    if isinstance(fn, functools.partial):
        return f"functools.partial({_spelled(cast('functools.partial[object]', fn).func)}, ...)"
    public = public_name(fn)
    if public is None:
        name = short_name(fn)
        return "kernel" if name == "lambda" else name
    module, _, name = public.partition(":")
    return f"{_ALIASES.get(module, module)}.{name}" if module.partition(".")[0] in ("jax", "numpy") else name
