"""What XLA for CPUs allots for small programs, beside what is predicted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tapestry_jax.memory.compilers.cpu import as_on_cpus
from tapestry_jax.memory.liveness import peak
from tapestry_jax.memory.read import read_program

N = 128
_SLACK = 8192
"""Bytes of tables, of small constants and of what the compiler pads: an eighth of a square."""


def assert_as_compiled(function: Callable[..., Any], shapes: Sequence[tuple[int, ...]]) -> None:
    """The temporaries of a function of float32 arrays are those that the compiler allots."""
    structs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    said: Any = jax.jit(function).lower(*structs).compile().memory_analysis()
    predicted = peak(as_on_cpus(read_program(jax.make_jaxpr(function)(*structs)))).bytes
    assert predicted == pytest.approx(said.temp_size_in_bytes, rel=0.02, abs=_SLACK)
