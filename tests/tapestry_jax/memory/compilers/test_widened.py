"""What stands in memory in float32 on CPUs although a program says bfloat16, beside what XLA allots."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from tapestry_jax.memory.compilers.cpu import as_on_cpus
from tapestry_jax.memory.compilers.widened import WIDENS, widened
from tapestry_jax.memory.liveness import peak
from tapestry_jax.memory.read import read_program

N, LAYERS = 128, 12


def layers(x: Any, weights: Any) -> Any:
    return lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights)[0]


def kept(x: Any, weights: Any) -> Any:
    return jax.grad(lambda x: jnp.sum(layers(x, weights).astype(jnp.float32)))(x)


def alone(x: Any, weights: Any) -> Any:
    return jnp.tanh(x @ weights[0]) @ weights[1]


@pytest.mark.skipif(not WIDENS, reason="XLA of this version widens nothing in memory")
@pytest.mark.parametrize("function", [layers, kept, alone])
def test_temporaries_are_those_that_the_compiler_allots(function: Any) -> None:
    structs = [jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in ((N, N), (LAYERS, N, N))]
    said: Any = jax.jit(function).lower(*structs).compile().memory_analysis()
    program = read_program(jax.make_jaxpr(function)(*structs))
    found, narrow = (peak(as_on_cpus(each)).bytes for each in (widened(program), program))
    assert found == pytest.approx(said.temp_size_in_bytes, rel=0.1)
    assert narrow < 0.8 * said.temp_size_in_bytes


@pytest.mark.skipif(WIDENS, reason="XLA of this version widens what it reads")
@pytest.mark.parametrize("function", [kept, alone])
def test_nothing_is_widened_by_newer_versions(function: Any) -> None:
    structs = [jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in ((N, N), (LAYERS, N, N))]
    said: Any = jax.jit(function).lower(*structs).compile().memory_analysis()
    program = read_program(jax.make_jaxpr(function)(*structs))
    assert widened(program) is program
    assert peak(as_on_cpus(program)).bytes == pytest.approx(said.temp_size_in_bytes, rel=0.15)


def test_a_program_without_bfloat16_stays_as_it_is() -> None:
    structs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((N, N), (LAYERS, N, N))]
    program = read_program(jax.make_jaxpr(layers)(*structs))
    assert widened(program) is program
