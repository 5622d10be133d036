"""Programs that are lowered one after the other share a context of MLIR, and those that may not do not."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

import jax
import numpy as np
import pytest

from tests.shared_contexts import SharedContext

OPERAND = np.arange(4, dtype=np.float32)


def _lowered(by: float) -> Any:
    return jax.jit(lambda x: x * by).lower(OPERAND)


def _context(lowered: Any) -> Any:
    return lowered.compiler_ir("stablehlo").context


def test_programs_share_a_context():
    made = [_context(_lowered(by)) for by in range(5)]
    assert any(first == second for first, second in pairwise(made))


def test_another_thread_compiles_what_this_one_lowered():
    lowered, found = _lowered(3), []
    thread = threading.Thread(target=lambda: found.append(lowered.compile()))
    thread.start()
    others = [_lowered(by) for by in range(10, 15)]
    thread.join()
    for by, program in [(3, found[0]), *zip(range(10, 15), (other.compile() for other in others), strict=True)]:
        np.testing.assert_array_equal(np.asarray(program(OPERAND)), by * OPERAND)


def test_what_another_thread_compiles_is_left_to_it():
    shared = SharedContext(object)
    first = shared.context()
    thread = threading.Thread(target=lambda: shared.compiled(lambda: None))
    thread.start()
    thread.join()
    assert shared.context() is not first


def test_what_is_lowered_while_xla_compiles_has_a_context_of_its_own():
    shared = SharedContext(object)
    first = shared.context()
    inside = shared.compiled(lambda: (shared.context(), shared.context()))
    assert first not in inside and inside[0] is not inside[1]
    assert shared.context() is first


def test_another_thread_has_contexts_of_its_own():
    shared, found = SharedContext(object), []
    first = shared.context()
    thread = threading.Thread(target=lambda: found.append(shared.context()))
    thread.start()
    thread.join()
    assert found[0] is not first and shared.context() is first


def test_an_old_context_is_left():
    shared = SharedContext(object, most=3)
    made = [shared.context() for _ in range(7)]
    assert made[0] is made[2] is not made[3] is made[5] is not made[6]


def test_compiling_ends_also_where_it_fails():
    shared = SharedContext(object)
    first = shared.context()

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        shared.compiled(fail)
    assert shared.context() is first
