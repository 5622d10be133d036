"""Names of JAX's instructions and of XLA's, also as XLA compiles them for users: the suite's flags hide its loops."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.interpreters import mlir  # noqa: TID251 - the public place of the rules of primitives

import combinators
from combinators.kernels.named_apart import FUSED

# XLA's operations whose names have a `-`.
OPCODES = """
    add-dependency after-all all-gather all-gather-done all-gather-start all-reduce all-reduce-done all-reduce-start
    all-to-all async-done async-start async-update batch-norm-grad batch-norm-inference batch-norm-training
    bitcast-convert collective-broadcast collective-permute collective-permute-done collective-permute-start
    copy-done copy-start count-leading-zeros custom-call dynamic-reshape dynamic-slice dynamic-update-slice
    exponential-minus-one get-dimension-size get-tuple-element is-finite log-plus-one opt-barrier partition-id
    ragged-all-to-all ragged-dot recv-done reduce-precision reduce-scatter reduce-window replica-id
    rng-bit-generator rng-get-and-update-state round-nearest-afz round-nearest-even select-and-scatter send-done
    set-dimension-size shift-left shift-right-arithmetic shift-right-logical stochastic-convert triangular-solve
"""
# Calls of other devices and of libraries, and what XLA writes out before it fuses: no fused loop holds them.
ALONE = {"after_all", "all_to_all", "ragged_all_to_all", "reduce_scatter", "triangular_solve"}
ALONE |= {"all_gather", "all_gather_start", "all_gather_done", "rng_bit_generator", "select_and_scatter"}

_X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(4, 3)
_BITS = np.arange(4, dtype=np.int32) * 1000003 - 7
MADE: dict[str, Callable[[], tuple[Callable[..., Any], tuple[Any, ...], Any]]] = {
    "dynamic_slice": lambda: (lambda x, i: lax.dynamic_slice_in_dim(x, i, 2), (_X, 1), _X[1:3]),
    "dynamic_update_slice": lambda: (
        lambda x, i: lax.dynamic_update_slice(x, 2 * x[:1], (i, 0)),
        (_X, 2),
        np.concatenate([_X[:2], 2 * _X[:1], _X[3:]]),
    ),
    "is_finite": lambda: (jnp.isfinite, (np.array([1, np.inf, np.nan]),), np.array([True, False, False])),
    "reduce_precision": lambda: (
        lambda x: lax.reduce_precision(x, 8, 1),
        (np.float32([1.6, 2.1]),),
        np.float32([1.5, 2]),
    ),
    "reduce_window": lambda: (
        lambda x: lax.reduce_window(x, np.float32(0), lambda a, b: a + b * 1, (2, 1), (1, 1), "VALID"),
        (_X,),
        _X[1:] + _X[:-1],
    ),
    "shift_left": lambda: (lambda x: lax.shift_left(x, 3), (_BITS,), _BITS << 3),
    "shift_right_arithmetic": lambda: (lambda x: lax.shift_right_arithmetic(x, 3), (_BITS,), _BITS >> 3),
    "shift_right_logical": lambda: (
        lambda x: lax.shift_right_logical(x, 3),
        (_BITS,),
        (_BITS.view(np.uint32) >> 3).view(np.int32),
    ),
}

# A quotient by a power of two is a shift of XLA's making. Without names apart one shift runs in place of another.
SHIFTS = """
import jax, jax.numpy as jnp, numpy as np

def is_right():
    bits = np.arange(7, dtype=np.uint32) * np.uint32(1234567)
    # A function of its own: what was compiled before is not asked again.
    run = jax.jit(lambda x: jnp.concatenate([x // np.uint32(2), x >> np.uint32(5), x >> np.uint32(6)]))
    return np.array_equal(run(bits), np.concatenate([bits // 2, bits >> 5, bits >> 6]))

print(is_right())
import combinators
print(is_right())
"""


def test_whatever_a_fused_loop_may_hold_is_renamed() -> None:
    tables = [mlir._lowerings, *mlir._platform_specific_lowerings.values()]
    known = {primitive.name for table in tables for primitive in table}
    assert {name for name in known if name.replace("_", "-") in OPCODES.split()} - ALONE == {*FUSED}
    # A rule for one platform would go before the renamed one.
    assert not {primitive.name for table in tables[1:] for primitive in table} & {*FUSED}


@pytest.mark.parametrize("name", FUSED)
def test_compiled_programs_hold_the_new_name_and_the_old_numbers(name: str) -> None:
    made, args, expected = MADE[name]()

    def in_a_scope(*args: Any) -> Any:
        with jax.named_scope("scope"):
            return made(*args)

    compiled = jax.jit(in_a_scope).lower(*args).compile()
    np.testing.assert_array_equal(compiled(*args), expected)
    text = compiled.as_text()
    assert f'/scope/lax_{name}"' in text
    assert not re.search(rf"%{name}\b", text)


def test_slices_of_loops_and_of_derivatives_are_renamed() -> None:
    def last(x: Any, i: Any) -> Any:
        _, each = lax.scan(lambda carry, row: (carry + row, carry * row), jnp.zeros(3), x)
        return jnp.sum(lax.dynamic_slice_in_dim(each, i, 2))

    text = jax.jit(jax.vmap(jax.grad(last), (0, None))).lower(np.stack([_X, _X]), 1).compile().as_text()
    assert re.search(r"%lax_dynamic_slice\.\d+ =", text) and re.search(r"%lax_dynamic_update_slice\.\d+ =", text)
    assert not re.search(r"%dynamic(_update)?_slice\b", text)


def test_sizes_that_are_symbols_are_exported() -> None:
    from jax import export

    (size,) = export.symbolic_shape("n")
    exported = export.export(jax.jit(lambda x: lax.dynamic_slice_in_dim(x, 1, x.shape[0] - 1)))(
        jax.ShapeDtypeStruct((size,), jnp.float32)
    )
    np.testing.assert_array_equal(exported.call(np.arange(5, dtype=np.float32)), np.arange(1, 5))


def test_shifts_beside_quotients_under_the_default_flags() -> None:
    # Without this package they are wrong, which is what it is for (jaxlib 0.10 to 0.12).
    told = {"XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR"}
    environment = {name: value for name, value in os.environ.items() if name not in told}
    environment["PYTHONPATH"] = str(Path(combinators.__file__).parents[1])
    ran = subprocess.run([sys.executable, "-c", SHIFTS], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["False", "True"]
