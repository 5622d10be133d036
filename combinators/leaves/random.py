"""Random numbers as a pure function of key and coordinate: the same bits under any plan.

Numbers   bits uniform normal bernoulli, of the shape and names of another value: `random.normal(key, like=x)`
Keys      split fold_in, as those of `jax.random`
"""

from __future__ import annotations

import functools
import math
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from combinators.arguments import is_whole, read_dimension, read_number
from combinators.errors import GraphError, message, spelt
from combinators.frozen import dataclass
from combinators.index_space.signature import Signature
from combinators.index_space.tensor_type import TensorType, type_of, words_of
from combinators.kernels.fingerprint import is_traced
from combinators.leaves.map import Map
from combinators.operations.operation import Operation
from combinators.recording.current import current_trace, trace_of
from combinators.recording.value import Value, as_value

__all__ = ("bernoulli", "bits", "fold_in", "normal", "split", "uniform")


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__") and name.endswith("__"))])


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
        # Not at the top: `jax.extend` loads Pallas, see `combinators.kernels.jaxprs`.
        from jax.extend.random import threefry_2x32

        return threefry_2x32(key, counter)[: high.size].reshape(block)


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


def bits(key: Any, *misplaced: Any, like: Any = None) -> Any:
    """Uniform uint32, one for each cell of `like`."""
    return _draw(key, _named_like(misplaced, like, "bits"), "bits")


def uniform(key: Any, *misplaced: Any, like: Any = None, dtype: Any = jnp.float32) -> Any:
    """Uniform in [0, 1): multiples of 2**-24, or of what a dtype of fewer bits can tell apart."""
    return _draw(key, _named_like(misplaced, like, "uniform"), "uniform", dtype=TensorType((), dtype).dtype.name)


def normal(key: Any, *misplaced: Any, like: Any = None, dtype: Any = jnp.float32) -> Any:
    """Standard normal, by the inverse error function."""
    return _draw(key, _named_like(misplaced, like, "normal"), "normal", dtype=TensorType((), dtype).dtype.name)


def bernoulli(key: Any, p: float = 0.5, *misplaced: Any, like: Any = None) -> Any:
    """True with probability `p` (to 2**-24).

    Args:
      key: a typed key, `jax.random.key(seed)`, or its two words; inside a program a value.
      p: the probability, a Python number.
      misplaced: nothing; what stands there is refused.
      like: whose axes and sizes the result has; a `tp.TensorType` will do.

    Returns:
      bool, the axes of `like`.

    Laws: the same bits for any box, device and order.

    Source: Salmon et al. 2011 (Threefry), by `jax.extend.random.threefry_2x32`.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> bernoulli(jax.random.key(0), 1.0, like=jnp.zeros((2, 2))).tolist()
      [[True, True], [True, True]]
    """
    like = _named_like(misplaced, like, "bernoulli")
    chance = read_number(p, "the probability of tp.random.bernoulli")
    if not 0 <= chance <= 1:
        raise GraphError(message("a probability lies in [0, 1]", f"got {p!r}", remedy="Give one that does."))
    return _draw(key, like, "bernoulli", chance)


@dataclass(frozen=True)
class Words:
    """A key that does not change.

    Attributes:
      first: its first word.
      second: its second.
    """

    first: int
    second: int

    def __call__(self, places: Any) -> Any:
        """The words at some places."""
        return jnp.where(places == 0, jnp.uint32(self.first), jnp.uint32(self.second))


@dataclass(frozen=True)
class FoldIn:
    """A new key from a key and an integer, as `jax.random.fold_in`.

    Attributes:
      data: the integer; None where it comes as the second operand.
    """

    data: int | None = None

    def __call__(self, key: Any, *data: Any) -> Any:
        """The two words of the new key."""
        number: Any = data[0] if data else self.data
        return jax.random.key_data(jax.random.fold_in(_wrap(key), number))


@dataclass(frozen=True)
class Split:
    """The keys at some places of `jax.random.split`.

    Attributes:
      count: of all keys.
      at: the place of the one key; None where coordinates come as the second operand.
    """

    count: int
    at: int | None = None

    def __call__(self, key: Any, *coordinates: Any) -> Any:
        """Two words for each place."""
        return jax.random.key_data(jax.random.split(_wrap(key), self.count))[coordinates[0] if coordinates else self.at]


def fold_in(key: Any, data: Any) -> Any:
    """Make a new key of a key and an integer: the same one as `jax.random.fold_in`.

    Args:
      key: a typed key, or its two words; inside a program a value.
      data: an integer; inside a program also a value without axes, such as a counter.

    Returns:
      The new key: inside a program the value of its two words, `uint32(2)`, on arrays what came in.

    Raises:
      GraphError: when `key` is no key, or `data` no integer.
    """
    words = _check_key(key, "fold_in")
    counts = is_whole(data) and 0 <= data < 2**32
    if hasattr(data, "dtype") and not isinstance(data, np.generic):
        counts = data.shape == () and jnp.issubdtype(data.dtype, jnp.integer)
    if not counts:
        raise GraphError(
            message(
                "tp.random.fold_in takes an integer",
                f"got {spelt(data)}",
                remedy="Pass an integer without axes, from 0 to 2**32 - 1.",
            )
        )
    if isinstance(words, Value):
        if isinstance(data, Value):
            return Map(FoldIn(), "[words], -> [words]", name="fold_in")(words, data)
        return Map(FoldIn(int(data)), "[words] -> [words]", name="fold_in")(words)
    if isinstance(data, Value):
        raise GraphError(message("tp.random.fold_in has a key from outside", remedy="Pass the key to the program."))
    folded = jax.random.fold_in(_wrap(words), cast("Any", data))
    return folded if words is not key else jax.random.key_data(folded)


def split(key: Any, num: int = 2, *, over: str | None = None) -> Any:
    """Make several keys of one: the same ones as `jax.random.split`.

    Args:
      key: a typed key, or its two words; inside a program a value.
      num: how many.
      over: inside a program, the name of an axis along which they lie, as `tp.stack` takes them; by default they
        come as a tuple.

    Returns:
      A tuple of `num` keys, or with `over` one tensor of their words.

    Raises:
      GraphError: when `key` is no key, or `num` no positive integer.
    """
    words = _check_key(key, "split")
    if not is_whole(num) or num < 1:
        raise GraphError(
            message(
                "tp.random.split makes a positive number of keys", f"got {spelt(num)}", remedy="Pass num=2 or more."
            )
        )
    num = int(num)
    if num > 2**20:
        raise GraphError(
            message("tp.random.split makes at most 2**20 keys", f"got {num}", remedy="Fold numbers into one key.")
        )
    over = None if over is None else read_dimension(over, "over= of tp.random.split")
    if isinstance(words, Value):
        if over is None:
            return tuple(Map(Split(num, at), "[words] -> [words]", name="split")(words) for at in range(num))
        return Map(Split(num), f"[words], @{over} -> {over} [words]", sizes={over: num}, name="split")(words)
    keys = jax.random.split(_wrap(words), num)
    keys = keys if words is not key else jax.random.key_data(keys)
    return keys if over is not None else tuple(keys)


def _wrap(words: Any) -> Any:
    return jax.random.wrap_key_data(words, impl="threefry2x32")


@functools.partial(jax.jit, static_argnums=0)
def _draw_all(kernel: Draw, key: Any) -> Any:
    return kernel(key, *(jnp.arange(size, dtype=jnp.int32) for size in kernel.shape))


def _check_key(key: Any, where: str) -> Any:
    """The two words of a key, whether it is a value of a program or an array."""
    words = as_value(key)
    words = words if isinstance(words, Value) else words_of(words)
    if getattr(words, "dtype", None) != jnp.uint32 or words.shape != (2,):
        raise GraphError(
            message(
                f"tp.random.{where} needs a key of two uint32 words",
                f"got {spelt(key)}",
                remedy="Pass jax.random.key(seed), of the implementation threefry2x32; to a program as an argument.",
            )
        )
    if isinstance(words, Value) or current_trace() is None or is_traced(words):
        return words
    # A key that stands in a program, such as one that makes parameters, is two numbers of it.
    first, second = np.asarray(words).tolist()
    return Map(Words(first, second), "@words -> words", sizes={"words": 2}, name="key")()


def _named_like(misplaced: tuple[Any, ...], like: Any, where: str) -> Any:
    """What random numbers are drawn like, which is given by its name: a shape has no axes that a plan could cut."""
    if misplaced or like is None:
        raise GraphError(
            message(
                f"tp.random.{where} draws numbers like something, and takes no shape",
                f"got {spelt(misplaced[0])}" if misplaced else "got no `like`",
                remedy=f'Pass like=x, or a type: tp.random.{where}(key, like=tp.TensorType({{"row": 3, "embed": 4}})).',
            )
        )
    return like


def _axes_of(like: Any, where: str) -> tuple[tuple[int, ...], tuple[str | None, ...]]:
    """The shape and the names of what random numbers are drawn like."""
    if isinstance(like, Value):
        like = like.settle()
    kind = like if isinstance(like, Value | TensorType) else type_of(like, f"`like` of tp.random.{where}")
    return tuple(kind.shape), tuple(kind.names)


def _draw(key: Any, like: Any, distribution: str, parameter: float = 0.5, dtype: str = "float32") -> Any:
    shape, axes = _axes_of(like, distribution)
    data = _check_key(key, distribution)
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
    if not isinstance(like, Value) and not isinstance(data, Value):
        return _draw_all(kernel, data)
    recording = trace_of([data, like] if isinstance(like, Value) else [data], distribution)
    if None in axes:
        raise GraphError(
            message(
                f"tp.random.{distribution} needs the axes of `like` to have names",
                f"got {like!r}",
                remedy="Name them by the program's signature or by a tp.TensorType.",
            )
        )
    names = [str(name) for name in axes]
    text = ", ".join(["[words]", *(f"@{name}" for name in names)]) + " -> " + " ".join(names)
    operation = Operation(
        Signature.parse(text), kernel, sizes=tuple(sorted(zip(names, shape, strict=True))), name=distribution
    )
    return recording.apply(operation, [data])
