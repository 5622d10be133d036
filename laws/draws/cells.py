"""Numbers for cells: what is drawn for a dtype, as plain data that prints and shrinks well."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

Struct = jax.ShapeDtypeStruct
Number = bool | int | float
F32, I32, BOOL = Struct((), jnp.float32), Struct((), jnp.int32), Struct((), jnp.bool_)


def numbers(dtype: Any, domain: str, special: Sequence[float] = ()) -> SearchStrategy[Number]:
    """Draw finite numbers of a dtype, whose products stay in range.

    Args:
      dtype: boolean, integer or real float.
      domain: floats are small integers (`integers`), sixteenths (`normal`), or of any magnitude (`scaled`).
      special: further values to draw, such as `-inf` where the carrier gives it a meaning.
    """
    if dtype == jnp.bool_:
        return st.booleans()
    if jnp.issubdtype(dtype, jnp.integer):
        info = jnp.iinfo(dtype)
        return st.integers(max(-100, int(info.min)), min(100, int(info.max)))
    # A product of sixteen elements, or its inverse, neither overflows nor underflows.
    limit = 2.0 ** (math.frexp(float(jnp.finfo(dtype).max))[1] // 16)
    small = int(min(limit, 4.0))
    plain: SearchStrategy[Number]
    match domain:
        case "integers":
            plain = st.integers(-small, small).map(float)
        case "normal":
            plain = st.integers(-16 * small, 16 * small).map(lambda n: n / 16)
        case _:
            plain = _scaled(limit).map(lambda x: float(np.asarray(x, dtype)))
    return st.one_of(plain, st.sampled_from(list(special))) if special else plain


def extremes(dtype: Any, infinite: bool) -> SearchStrategy[Number]:
    """Draw numbers at the ends of a dtype's range; infinities and NaN where `infinite`."""
    if dtype == jnp.bool_:
        return st.booleans()
    if jnp.issubdtype(dtype, jnp.integer):
        info = jnp.iinfo(dtype)
        return st.sampled_from([1, 0, int(info.max), int(info.min)])
    info = jnp.finfo(dtype)
    largest = float(info.max)
    ends = [1.0, largest, -largest, float(info.tiny), math.sqrt(largest) * 4, 0.0]
    return st.sampled_from(ends + ([math.inf, -math.inf, math.nan] if infinite else []))


def cells(struct: Struct, entries: SearchStrategy[Number]) -> SearchStrategy[Any]:
    """Draw one cell: a number, or the flat list of its entries."""
    if struct.shape == ():
        return entries
    size = math.prod(struct.shape)
    return st.lists(entries, min_size=size, max_size=size)


def build_cell(struct: Struct, recipe: Any) -> np.ndarray[Any, Any]:
    """The array of a drawn cell."""
    with np.errstate(over="ignore"):
        return np.asarray(recipe, struct.dtype).reshape(struct.shape)


def why_not_drawn(dtype: Any) -> str | None:
    """Why no numbers of a dtype are drawn, or None: recipes hold real numbers, integers and booleans alone."""
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return f"{dtype} holds random keys, and keys are not drawn: draw a seed and make the key of it"
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return f"{dtype} is complex, and complex numbers are not drawn: take real and imaginary part as two leaves"
    if dtype == jnp.bool_ or jnp.issubdtype(dtype, jnp.integer) or jnp.issubdtype(dtype, jnp.floating):
        return None
    return f"no numbers of {dtype} are drawn"


def plain(leaf: Any) -> Any:
    """An array as plain data: a number, or the flat list of its entries; integers stay integers, of any size."""
    array = np.asarray(leaf)
    if array.dtype.kind not in "biu":
        array = array.astype(np.float64)
    return array.ravel().tolist() if array.ndim else array.item()


def show_cell(recipe: Any) -> str:
    """A drawn cell as text; whole floats without their `.0`."""
    if isinstance(recipe, list | tuple):
        return "[" + ", ".join(show_cell(entry) for entry in recipe) + "]"
    return f"{recipe:.9g}" if isinstance(recipe, float) else str(recipe)


def is_dyadic(recipe: Any) -> bool:
    """Whether all numbers of a recipe are integers or short dyadic fractions, whose sums and products are exact."""
    if isinstance(recipe, list | tuple):
        return all(is_dyadic(entry) for entry in recipe)
    if isinstance(recipe, float):
        return math.isfinite(recipe) and abs(recipe) <= 1024 and (recipe * 64).is_integer()
    return True


def type_name(struct: Any) -> str:
    """A type as JAX prints it: `f32[4,3]`."""
    kind = np.dtype(struct.dtype)
    short = "bf16" if kind.name == "bfloat16" else "bool" if kind.kind == "b" else f"{kind.kind}{kind.itemsize * 8}"
    return f"{short}[{','.join(map(str, struct.shape))}]"


def _scaled(limit: float) -> SearchStrategy[float]:
    """Numbers of all magnitudes from `1 / limit` to `limit`, with 24 digits: hypothesis' floats are mostly short."""
    most = max(1, round(math.log2(limit)))
    digits = st.tuples(st.integers(2048, 4095), st.integers(0, 4095)).map(
        lambda pair: (pair[0] * 4096 + pair[1]) / 2**24
    )
    signs, exponents = st.sampled_from([1, -1]), st.integers(1 - most, most)
    return st.tuples(signs, digits, exponents).map(lambda drawn: drawn[0] * drawn[1] * 2.0 ** drawn[2])
