"""Random numbers as a pure function of key and coordinate: the same bits under any plan."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import random as extended

from combinators.errors import GraphError, message
from combinators.operation import Operation
from combinators.signature import Signature
from combinators.trace import trace_of
from combinators.value import Value


@dataclass(frozen=True)
class Draw:
    """Counter-based random numbers at the coordinates of a block.

    The counter of a cell is its row-major linear index as two 32-bit words, so no two cells of a tensor share one.

    Attributes:
      shape: the whole tensor's.
      distribution: `bits`, `uniform` (in [0, 1)), `normal` or `bernoulli`.
      parameter: the probability of `bernoulli`.
      dtype: of floating results.
    """

    shape: tuple[int, ...]
    distribution: str
    parameter: float = 0.5
    dtype: str = "float32"

    def __call__(self, key: Any, *coordinates: Any) -> Any:
        """Draw for every combination of the coordinates."""
        bits = self._bits(key, coordinates)
        if self.distribution == "bits":
            return bits
        # As many bits as the significand holds, at most the 24 of float32, so that nothing rounds up to 1.
        width = min(jnp.finfo(self.dtype).nmant + 1, 24) if self.distribution == "uniform" else 24
        unit = (bits >> (32 - width)).astype(jnp.float32) * jnp.float32(2**-width)
        if self.distribution == "bernoulli":
            return unit < self.parameter
        if self.distribution == "uniform":
            return unit.astype(self.dtype)
        centred = (unit + jnp.float32(2**-25)) * 2 - 1
        return (jnp.float32(math.sqrt(2)) * lax.erf_inv(centred)).astype(self.dtype)

    def _bits(self, key: Any, coordinates: tuple[Any, ...]) -> Any:
        cut = _split_words(self.shape)
        block = tuple(at.shape[0] for at in coordinates)
        high = _linear(coordinates[:cut], self.shape[:cut], 0, block)
        low = _linear(coordinates[cut:], self.shape[cut:], cut, block)
        counter = jnp.concatenate([high.ravel(), low.ravel()])
        return extended.threefry_2x32(key, counter)[: high.size].reshape(block)


def _split_words(shape: tuple[int, ...]) -> int:
    """The first axis of those whose linear index fits into the low word."""
    cut = len(shape)
    while cut and math.prod(shape[cut - 1 :]) <= 2**32:
        cut -= 1
    return cut


def _linear(coordinates: tuple[Any, ...], shape: tuple[int, ...], lead: int, block: tuple[int, ...]) -> Any:
    total = jnp.zeros(block, jnp.uint32)
    for number, at in enumerate(coordinates):
        # 2**32 wraps to 0, and stands only before an axis of size 1.
        stride = jnp.uint32(math.prod(shape[number + 1 :]) % 2**32)
        spread = at.astype(jnp.uint32).reshape([-1 if i == lead + number else 1 for i in range(len(block))])
        total = total + spread * stride
    return total


def bits(key: Any, *, like: Any) -> Any:
    """Uniform uint32, one for each cell of `like`."""
    return _draw(key, like, "bits")


def uniform(key: Any, *, like: Any, dtype: Any = jnp.float32) -> Any:
    """Uniform in [0, 1): multiples of 2**-24, or of what a dtype of fewer bits can tell apart."""
    return _draw(key, like, "uniform", dtype=jnp.dtype(dtype).name)


def normal(key: Any, *, like: Any, dtype: Any = jnp.float32) -> Any:
    """Standard normal, by the inverse error function."""
    return _draw(key, like, "normal", dtype=jnp.dtype(dtype).name)


def bernoulli(key: Any, p: float = 0.5, *, like: Any) -> Any:
    """True with probability `p` (to 2**-24).

    Args:
      key: uint32 of shape (2,), such as `jax.random.key_data(key)`; on arrays a typed key will do.
      p: the probability, a Python number.
      like: whose axes and sizes the result has.

    Returns:
      bool, the axes of `like`.

    Laws: the same bits for any box, device and order.

    Source: Salmon et al. 2011 (Threefry), by `jax.extend.random.threefry_2x32`.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> bernoulli(jax.random.key(0), 1.0, like=jnp.zeros((2, 2))).tolist()
      [[True, True], [True, True]]
    """
    return _draw(key, like, "bernoulli", float(p))


@functools.partial(jax.jit, static_argnums=0)
def _draw_all(kernel: Draw, key: Any) -> Any:
    return kernel(key, *(jnp.arange(size, dtype=jnp.int32) for size in kernel.shape))


def _key_data(key: Any, distribution: str) -> Any:
    dtype = getattr(key, "dtype", None)
    if dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return jax.random.key_data(key)
    if dtype != jnp.uint32 or jnp.shape(key) != (2,):
        raise GraphError(
            message(
                f"tp.random.{distribution} needs a key of two uint32 words",
                f"got {key!r:.80}",
                remedy="Pass jax.random.key(seed), inside a program jax.random.key_data(key).",
            )
        )
    return key


def _draw(key: Any, like: Any, distribution: str, parameter: float = 0.5, dtype: str = "float32") -> Any:
    shape = tuple(like.shape)
    if not jnp.issubdtype(dtype, jnp.floating):
        raise GraphError(
            message(
                f"tp.random.{distribution} draws floating numbers", f"got dtype {dtype}", remedy="Use tp.random.bits."
            )
        )
    if math.prod(shape[: _split_words(shape)]) > 2**32:
        raise GraphError(
            message(
                "a random tensor has more cells than its counter can tell apart",
                f"got shape {shape}",
                remedy="Draw smaller tensors with different keys.",
            )
        )
    kernel = Draw(shape, distribution, parameter, dtype)
    if not isinstance(like, Value):
        data = _key_data(key, distribution)
        return _draw_all(kernel, data)
    recording = trace_of([key, like], distribution)
    if key.dtype != jnp.uint32 or key.shape != (2,):
        raise GraphError(
            message(
                f"tp.random.{distribution} needs a key of two uint32 words",
                f"got {key!r}",
                remedy="Pass jax.random.key_data(key) to the program.",
            )
        )
    if None in like.settle().names:
        raise GraphError(
            message(
                f"tp.random.{distribution} needs the axes of `like` to have names",
                f"got {like!r}",
                remedy="Name them by the program's signature or by a tp.TensorType.",
            )
        )
    names = [str(name) for name in like.names]
    text = ", ".join(["[words]", *(f"@{name}" for name in names)]) + " -> " + " ".join(names)
    operation = Operation(
        Signature.parse(text), kernel, sizes=tuple(sorted(zip(names, shape, strict=True))), name=distribution
    )
    return recording.apply(operation, [key])
