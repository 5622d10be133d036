"""Random keys: tensors of words in a graph, keys where a kernel needs them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from combinators.frozen import dataclass
from combinators.index_space.tensor_type import is_key
from tapestry_jax.lifting.kernels.equations import Function, Opaque, function_of, text_of
from tapestry_jax.lifting.kernels.primitives import run
from tapestry_jax.lifting.rules.named import apply
from tapestry_jax.lifting.rules.unknown import check
from tapestry_jax.lifting.values import Atom
from tapestry_jax.lifting.walk import Walk, types_of
from tapestry_jax.lowering.on_device.varying import vary, varying_axes

_CALLS = frozenset({"scan", "while", "cond"})


@dataclass(frozen=True)
class OnWords:
    """A primitive of keys, on whole tensors of words.

    Attributes:
      function: what it computes, of words.
    """

    function: Function

    def __call__(self, *operands: Any) -> Any:
        """Its result, or the tuple of its results."""
        out = self.function.call(*operands)
        return out[0] if len(out) == 1 else tuple(out)


def keys(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom]:
    """Keys whole; the bits that are drawn are told by their coordinates, so that a plan may cut them."""
    name = equation.primitive.name
    if name in ("random_wrap", "random_unwrap"):
        return atoms
    check(equation, walk.place)
    outs = types_of(equation)
    function = Function(_on_words(equation, walk.within), text_of(equation))
    operands = [(atom, [f"o{n}_{a}" for a in range(len(walk.shape(atom)))]) for n, atom in enumerate(atoms)]
    results = [(out, [f"r{n}_{a}" for a in range(len(out.shape))]) for n, out in enumerate(outs)]
    everything = {dim for _, dims in (*operands, *results) for dim in dims}
    if name == "random_bits" and (counted := _counted(walk, equation, atoms, outs[0])) is not None:
        return counted
    call = Opaque(name, function, walk.place) if name in _CALLS else OnWords(function)
    return apply(walk, name, call, operands, results, whole=everything)


@dataclass(frozen=True)
class Counted:
    """Bits as JAX draws them where they are a function of key and counter, the row-major position of a cell.

    Attributes:
      shape: of the whole tensor.
      width: bits of a number: 8, 16 or 32.
    """

    shape: tuple[int, ...]
    width: int

    def __call__(self, key: Any, *coordinates: Any) -> Any:
        """The bits at the coordinates; axes of size 1 have none."""
        told = iter(coordinates)
        at = [jnp.zeros(1, jnp.uint32) if size == 1 else next(told).astype(jnp.uint32) for size in self.shape]
        low = jnp.zeros([len(place) for place in at], jnp.uint32)
        for axis, place in enumerate(at):
            stride = jnp.uint32(math.prod(self.shape[axis + 1 :]))
            low = low + (place * stride).reshape([-1 if other == axis else 1 for other in range(len(at))])
        left, right, high, low = (_alike(part, low, key) for part in (key[0], key[1], jnp.zeros_like(low), low))
        bits = [*run("threefry2x32", (), (left, right, high, low))]
        mixed = bits[0] ^ bits[1]
        return mixed if self.width == 32 else mixed.astype(f"uint{self.width}")


def _alike(part: Any, like: Any, key: Any) -> Any:
    axes = varying_axes(like) | varying_axes(key)
    return vary(jnp.broadcast_to(part, like.shape), axes)


def _counted(walk: Walk, equation: Any, atoms: list[Atom], out: Any) -> list[Atom] | None:
    """Bits by counters: of one threefry key, where JAX draws them so (`jax_threefry_partitionable`)."""
    key, width = equation.invars[0].aval, int(equation.params["bit_width"])
    by_counter = bool(getattr(jax.config, "jax_threefry_partitionable", False))
    small = math.prod(out.shape) < 2**32
    if key.shape or str(impl_of(key)) != "threefry2x32" or not by_counter or width not in (8, 16, 32) or not small:
        return None
    names = [f"r{axis}" for axis in range(len(out.shape))]
    drawn = [name for name, size in zip(names, out.shape, strict=True) if size != 1]
    kernel = Counted(tuple(out.shape), width)
    return apply(walk, "random_bits", kernel, [(atoms[0], ["k"])], [(out, names)], whole={"k"}, at=drawn)


def impl_of(kind: jax.ShapeDtypeStruct) -> Any:
    """The implementation of keys of a type."""
    found: list[Any] = []
    jax.eval_shape(lambda key: found.append(jax.random.key_impl(key)), kind)
    return found[0]


def _on_words(equation: Any, within: Any) -> Any:
    function = function_of(equation, within)
    impls = [_impl(var.aval) for var in equation.invars]

    def call(*words: Any) -> list[Any]:
        given: Sequence[Any] = [
            word if impl is None else jax.random.wrap_key_data(word, impl=impl)
            for word, impl in zip(words, impls, strict=True)
        ]
        return [jax.random.key_data(leaf) if is_key(leaf.dtype) else leaf for leaf in function(*given)]

    return call


def _impl(aval: Any) -> Any:
    if not is_key(aval.dtype):
        return None
    return impl_of(jax.ShapeDtypeStruct(aval.shape, aval.dtype))
