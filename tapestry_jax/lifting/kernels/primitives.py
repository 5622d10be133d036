"""Primitives of JAX by name, so that kernels are plain data: a name and parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from combinators import monoids
from combinators.errors import KernelError, message
from combinators.frozen import dataclass
from combinators.merging.monoid import Monoid
from tapestry_jax.lowering.on_device.varying import vary, varying_axes

Params = tuple[tuple[str, Any], ...]


@cache
def _known() -> dict[str, Any]:
    # Not at the top: `jax.extend` loads Pallas as well, see combinators/kernels/jaxprs.py.
    from jax.extend.core import Primitive, primitives

    listed = [value for module in (lax, primitives) for value in vars(module).values()]
    return {value.name: value for value in listed if isinstance(value, Primitive)}


def is_known(primitive: Any) -> bool:
    """Whether a primitive is found again by its name."""
    return _known().get(primitive.name) is primitive


def primitive_of(name: str) -> Any:
    """The primitive of this name.

    Raises:
      KernelError: when this version of JAX publishes none.
    """
    if name not in _known():
        raise KernelError(
            message(f"JAX has no primitive `{name}`", remedy="Lift the function again, with this version of JAX.")
        )
    return _known()[name]


def run(name: str, params: Params, operands: Sequence[Any]) -> list[Any]:
    """Bind a primitive; returns the list of its results.

    Over a mesh its operands vary over the same axes: numbers, and what a derivative brings in, are the same everywhere.
    """
    primitive = primitive_of(name)
    axes = frozenset[str]().union(*map(varying_axes, operands))
    if axes and name in _SLOPES:
        return [_with_slope(name, params, *operands)]
    out = primitive.bind(*(vary(operand, axes) for operand in operands), **dict(params))
    return list(out) if primitive.multiple_results else [out]


# JAX 0.12.0 cannot differentiate these inside of a checked shard_map: numbers in their derivatives vary over no axis.
_SLOPES: dict[str, float] = {"erf": 2 / math.sqrt(math.pi), "erfc": -2 / math.sqrt(math.pi)}


def _with_slope(name: str, params: Params, operand: Any) -> Any:
    @jax.custom_jvp
    def call(x: Any) -> Any:
        return primitive_of(name).bind(x, **dict(params))

    @call.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        (x,), (moved,) = primals, tangents
        return call(x), moved * (jnp.exp(-x * x) * jnp.asarray(_SLOPES[name], x.dtype))

    return call(operand)


def plain(params: dict[str, Any]) -> Params | None:
    """Parameters as plain data, sorted; None where one of them is a program, a function or an object without fields.

    Where a result lies is the plan's to say: JAX writes it into conversions that it differentiates inside of a loop.
    """
    found = {name: None if name in _PLACES else _plain(value) for name, value in params.items()}
    return None if any(value is _NOT for value in found.values()) else tuple(sorted(found.items()))


_NOT = object()
_PLACES = frozenset({"sharding", "out_sharding"})


def _plain(value: Any) -> Any:
    if isinstance(value, np.integer):
        return int(value)
    if value is None or isinstance(value, bool | int | float | complex | str | np.dtype | np.generic):
        return value
    if isinstance(value, list):
        value = tuple(value)
    if isinstance(value, tuple):
        parts = [_plain(part) for part in value]
        if any(part is _NOT for part in parts):
            return _NOT
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if hasattr(value, "name") and hasattr(type(value), "__members__"):  # an enumeration
        return value
    fields = getattr(type(value), "__dataclass_fields__", None)
    if type(value).__module__.partition(".")[0] == "jax" and (fields is not None or _is_named(value)):
        return value
    return _NOT


def _is_named(value: Any) -> bool:
    # Tables of axis numbers, such as those of convolutions.
    return isinstance(value, tuple)


_MERGED = {
    "reduce_sum": (monoids.Sum,),
    "reduce_max": (monoids.Max,),
    "reduce_min": (monoids.Min,),
    "reduce_prod": (monoids.Prod,),
}
_NEUTRAL = {"reduce_sum": 0, "reduce_prod": 1, "reduce_or": 0, "reduce_xor": 0}


@dataclass(frozen=True)
class Bound:
    """One primitive whose parameters hold no sizes: right for a block of any size.

    Attributes:
      primitive: its name.
      params: its parameters.
    """

    primitive: str
    params: Params

    @property
    def merged_by(self) -> tuple[Monoid, ...] | None:
        """The monoids of a reduction, of truths and of numbers; None of what is none, or is asked for its numbers."""
        return _MERGED.get(self.primitive)

    @property
    def neutral(self) -> int | None:
        """What changes no result of a reduction; None where that depends on a dtype, and of what reduces nothing."""
        return _NEUTRAL.get(self.primitive)

    def __call__(self, *blocks: Any) -> Any:
        """Its result, or the tuple of its results."""
        out = run(self.primitive, self.params, blocks)
        return out[0] if len(out) == 1 else tuple(out)
