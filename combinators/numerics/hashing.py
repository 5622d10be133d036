"""Hashing of elements: MurmurHash3, a pure function of value and seed, the same on every device and in every layout.

Equal values hash equally whatever their dtype within integers and booleans of up to 32 bits, and within floats of up to
32 bits; `-0.0` is `0.0`, and all NaNs are one. Wider elements hash all of their bits.

Source: Appleby 2011, MurmurHash3_x86_32 (public domain): its constants, for words of 32 bits.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from combinators.errors import GraphError, message

_MULTIPLY1, _MULTIPLY2, _ADD = 0xCC9E2D51, 0x1B873593, 0xE6546B64
_FINAL1, _FINAL2 = 0x85EBCA6B, 0xC2B2AE35


def hash32(x: Any, seed: Any = 0) -> Any:
    """Hash every entry of an array.

    Args:
      x: booleans, integers or real floats of any shape.
      seed: an integer, or uint32 values that broadcast against `x`; different seeds give different functions.

    Returns:
      uint32 of the broadcast shape. For entries of up to 32 bits and one seed it is a bijection of their bits.

    Raises:
      GraphError: when the entries are complex.
    """
    words = element_words(x)
    state = _word(seed)
    for word in words:
        state = _mix_in(state, word)
    return finalise(state ^ _word(4 * len(words)))


def element_words(x: Any) -> list[Any]:
    """Split every entry of an array into the 32-bit words that stand for its value.

    Args:
      x: booleans, integers or real floats.

    Returns:
      One uint32 array of the same shape, or two for entries of 64 bits, the lower half first.

    Raises:
      GraphError: when the entries are complex.
    """
    x = jnp.asarray(x)
    if x.dtype == jnp.bool_ or jnp.issubdtype(x.dtype, jnp.integer):
        if x.dtype.itemsize <= 4:
            # Signed ones are extended by their sign, so that -1 is the same in all of them.
            wide = x if x.dtype == jnp.uint32 else x.astype(jnp.int32)
            return [lax.bitcast_convert_type(wide, jnp.uint32)]
        return _halves(x)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise GraphError(
            message(
                "hash32: there is no hash of such elements.",
                "expected  booleans, integers or real floats",
                f"got       {x.dtype.name}",
                remedy="Hash real and imaginary parts on their own.",
            )
        )
    x = x.astype(jnp.float64 if x.dtype.itemsize > 4 else jnp.float32)
    x = jnp.where(x == 0, jnp.zeros_like(x), jnp.where(x != x, jnp.full_like(x, jnp.nan), x))
    return [lax.bitcast_convert_type(x, jnp.uint32)] if x.dtype.itemsize <= 4 else _halves(x)


def finalise(state: Any) -> Any:
    """Avalanche a word: every bit of the result depends on every bit of `state`; a bijection of uint32.

    Args:
      state: uint32, NumPy's or JAX's.

    Returns:
      uint32 of the same shape.
    """
    state = (state ^ (state >> 16)) * _constant(state, _FINAL1)
    state = (state ^ (state >> 13)) * _constant(state, _FINAL2)
    return state ^ (state >> 16)


def reference_hash32(x: Any, seed: int = 0) -> Any:
    """Hash every entry of an array in NumPy, from its bytes; what tests compare with.

    Args:
      x: booleans, integers or real floats.
      seed: an integer.

    Returns:
      uint32 of the same shape.
    """
    x = np.asarray(x)
    x = x.astype(jnp.result_type(x.dtype))  # 32 bits, unless wider ones are enabled
    if x.dtype.kind == "b" or (x.dtype.kind in "iu" and x.dtype.itemsize < 4):
        x = x.astype(np.int32)
    elif x.dtype.kind not in "iu":
        x = x.astype(np.float64 if x.dtype.itemsize > 4 else np.float32) + 0.0  # turns -0.0 into 0.0
        x = np.where(np.isnan(x), np.asarray(np.nan, x.dtype), x)
    words = np.ascontiguousarray(x).reshape(-1, 1).view(np.uint32).astype(np.uint64)
    mask, state = np.uint64(0xFFFFFFFF), np.full(len(words), seed & 0xFFFFFFFF, np.uint64)
    for word in words.T:
        word = word * np.uint64(_MULTIPLY1) & mask
        word = ((word << np.uint64(15)) | (word >> np.uint64(17))) & mask
        state ^= word * np.uint64(_MULTIPLY2) & mask
        state = ((state << np.uint64(13)) | (state >> np.uint64(19))) & mask
        state = (state * np.uint64(5) + np.uint64(_ADD)) & mask
    state ^= np.uint64(4 * words.shape[1])
    for shift, factor in ((16, _FINAL1), (13, _FINAL2), (16, 1)):
        state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor) & mask
    return state.astype(np.uint32).reshape(x.shape)


def _mix_in(state: Any, word: Any) -> Any:
    word = _rotated(word * _constant(word, _MULTIPLY1), 15) * _constant(word, _MULTIPLY2)
    return _rotated(state ^ word, 13) * _constant(word, 5) + _constant(word, _ADD)


def _rotated(word: Any, by: int) -> Any:
    return (word << by) | (word >> (32 - by))


def _constant(like: Any, value: int) -> Any:
    return like.dtype.type(value)


def _word(value: Any) -> Any:
    return jnp.asarray(value & 0xFFFFFFFF if isinstance(value, int) else value, jnp.uint32)


def _halves(x: Any) -> list[Any]:
    bits = lax.bitcast_convert_type(x, jnp.uint32)
    return [bits[..., 0], bits[..., 1]]
