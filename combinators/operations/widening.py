"""A fold carried in a wider dtype than its program's: states are made and merged wide, results are rounded once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from combinators.frozen import dataclass
from combinators.merging.leafwise import native_of
from combinators.merging.monoid import Monoid
from combinators.merging.parts import SideBySide
from combinators.monoids.arg_extremum import combine_argmax, combine_argmin
from combinators.monoids.dual import Swapped
from combinators.monoids.first import combine_first, combine_last
from combinators.monoids.function import EachKey
from combinators.monoids.reservoir import merge_reservoirs
from combinators.monoids.runs import Continue
from combinators.monoids.segmented import Restart
from combinators.monoids.top_k import merge_top_k
from combinators.operations.dense import Dense
from combinators.operations.operation import Operation
from combinators.operations.shaped import Shaped, block_structs, shape
from combinators.settings import remembered

Struct = jax.ShapeDtypeStruct
_ARGUMENT = "preferred_element_type"
_SELECTING = ("max", "min", "or", "and")
_SELECTING_TOO = (combine_argmax, combine_argmin, combine_first, combine_last, merge_reservoirs, merge_top_k)


@dataclass(frozen=True)
class WideKernel:
    """A kernel whose floats narrower than `dtype` are computed in it.

    Attributes:
      kernel: operand blocks to a result or a state block.
      dtype: name of the dtype.
      by_argument: whether the kernel is told by `preferred_element_type=`, as matrix products are: their operands then
        stay narrow, and only the sums are wide. Otherwise operands are cast before it.
    """

    kernel: Callable[..., Any]
    dtype: str
    by_argument: bool = False

    @property
    def bare(self) -> Any:
        """The kernel that is computed."""
        return getattr(self.kernel, "bare", self.kernel)

    def __call__(self, *blocks: Any) -> Any:
        """The block, all floats narrower than `dtype` in it."""
        if self.by_argument:
            out = self.kernel(*blocks, **{_ARGUMENT: jnp.dtype(self.dtype)})
        else:
            out = self.kernel(*(self._wide(block) for block in blocks))
        return jax.tree.map(self._wide, out)

    def _wide(self, leaf: Any) -> Any:
        return leaf.astype(self.dtype) if is_narrower(leaf.dtype, self.dtype) else leaf


@dataclass(frozen=True)
class Rounded:
    """A function whose result leaves are rounded to given dtypes.

    Attributes:
      function: None is the identity.
      dtypes: of the leaves, by name, in flattening order.
    """

    function: Callable[..., Any] | None
    dtypes: tuple[str, ...]

    def __call__(self, *arguments: Any) -> Any:
        """The result, rounded."""
        out = self.function(*arguments) if self.function is not None else arguments[0]
        leaves, tree = jax.tree.flatten(out)
        return jax.tree.unflatten(tree, [_rounded(leaf, kind) for leaf, kind in zip(leaves, self.dtypes, strict=True)])


def _rounded(leaf: Any, dtype: str) -> Any:
    """The leaf in a dtype, rounded once.

    A float32 sum over devices that nothing but a cast to bfloat16 reads is sent in bfloat16 by the TPU's compiler: each
    part is rounded, and what is added on the way. A rounding that is no cast keeps the sum as wide as it was asked for.
    """
    if leaf.dtype == jnp.float32 and dtype == "bfloat16":
        kind = jnp.finfo(jnp.bfloat16)
        leaf = lax.reduce_precision(leaf, kind.nexp, kind.nmant)
    return leaf.astype(dtype)


def float_dtype(dtype: Any) -> Any:
    """The real float dtype that something names, the short formats too; None where it names none."""
    try:
        found = jnp.dtype(dtype)
    except (TypeError, ValueError):
        return None
    return found if jnp.issubdtype(found, jnp.floating) else None


def is_enabled(dtype: Any) -> bool:
    """Whether arrays of a dtype stay in it: JAX turns float64 into float32 unless it is told otherwise."""
    return jax.dtypes.canonicalize_dtype(dtype) == jnp.dtype(dtype)


def is_narrower(dtype: Any, wide: Any) -> bool:
    """Whether `dtype` is a real float and `wide` another one that holds all its values."""
    if float_dtype(dtype) is None or float_dtype(wide) is None:
        return False
    inner, outer = jnp.finfo(dtype), jnp.finfo(wide)
    return jnp.dtype(dtype) != jnp.dtype(wide) and inner.nmant <= outer.nmant and inner.maxexp <= outer.maxexp


def state_floats(shaped: Shaped) -> tuple[Any, ...]:
    """The float dtypes in which a fold or scan is carried and rounds; none where merging selects one of the states."""
    monoid = shaped.operation.monoid
    if monoid is None or _selects(monoid):
        return ()
    return tuple(dict.fromkeys(leaf.dtype for leaf in shaped.state if float_dtype(leaf.dtype) is not None))


def _selects(monoid: Monoid) -> bool:
    """Whether what is merged is some of what the states hold.

    A wider dtype would cost bytes and change no bit; and where nothing was merged, `-inf` is NaN in a dtype without it.
    """
    if monoid.parts:
        return all(map(_selects, monoid.parts))
    return monoid.native in _SELECTING or _selects_by(monoid.combine)


def _selects_by(combine: Any) -> bool:
    match combine:
        case Swapped(inner) | EachKey(inner):
            return _selects_by(inner)
        case Restart(monoid) | Continue(monoid):
            return _selects(monoid)
        case SideBySide(functions, _):
            return all(map(_selects_by, functions))
        case _:
            return native_of(combine) in _SELECTING or any(combine is one for one in _SELECTING_TOO)


@remembered(maxsize=4096)
def widened(operation: Operation, operands: tuple[Struct, ...], dtype: str) -> Operation:
    """The operation with its states in `dtype` and its results in the dtypes that they have.

    It is an ordinary operation: whatever plans, predicts or runs one needs to know nothing of it.

    Args:
      operation: of any kind.
      operands: types of its array operands.
      dtype: name of a float dtype.

    Returns:
      `operation` itself where it is a map, or none of its states is narrower.

    Raises:
      SignatureError: when the monoid does not merge states of `dtype`.
    """
    shaped = shape(operation, operands)
    if not any(is_narrower(kind, dtype) for kind in state_floats(shaped)):
        return operation
    dtypes = tuple(leaf.dtype.name for leaf in shaped.results)
    kernel = WideKernel(operation.kernel, dtype, _by_argument(shaped, operands, dtype))
    wide = replace(
        operation,
        kernel=kernel,
        present=Rounded(operation.present, dtypes),
        dense=_dense(operation, dtype, dtypes),
    )
    shape(wide, operands)
    return wide


def _dense(operation: Operation, dtype: str, dtypes: tuple[str, ...]) -> tuple[Callable[..., Any], ...]:
    """The dense kernels on wide operands; not those that are made for other types."""
    found: list[Callable[..., Any]] = []
    for entry in operation.dense:
        if not isinstance(entry, Dense):
            found.append(Rounded(WideKernel(entry, dtype), dtypes))
        elif entry.takes is None and (entry.dtypes is None or dtype in entry.dtypes):
            wide = WideKernel(entry.kernel, dtype)
            found.append(replace(entry, kernel=wide if entry.gives == "state" else Rounded(wide, dtypes), dtypes=None))
    return tuple(found)


def _by_argument(shaped: Shaped, operands: tuple[Struct, ...], dtype: str) -> bool:
    """Whether the kernel takes `preferred_element_type=`, forwards and in its gradient."""
    kernel: Any = shaped.operation.kernel
    try:
        if _ARGUMENT not in inspect.signature(kernel).parameters:
            return False
    except (TypeError, ValueError):
        return False
    told = WideKernel(kernel, dtype, by_argument=True)

    def gradient(*blocks: Any) -> Any:
        out, pull = jax.vjp(told, *blocks)
        return pull(out)

    try:
        jax.eval_shape(gradient, *block_structs(shaped.signature, operands, shaped.sizes))
    except Exception:  # noqa: BLE001 - a kernel that names the argument may refuse it in any way
        return False
    return True
