"""Drawn pairs as XLA compiles them for users: `python -m tests.pairs --compiled`, without XLA_FLAGS.

Programs are float32. Values with gradients are one program and values alone another: XLA fuses them in other ways.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

import tapestry_jax as tp
from tests.fused_names import nearly_shared_names
from tests.pairs.pair import in_true_sizes, judged, value_and_gradients
from tests.pairs.programs import Program

CHOSEN = {"dtype": "float32", "edition": 2}
"""What programs are drawn with."""


def compare_compiled(program: Program, plan: tp.Plan) -> tuple[str, str] | None:
    """What differs between compiled and unplanned, or instructions whose names may meet; None for nothing."""
    both, args = value_and_gradients(program, plan)
    (values, gradients), met = _run(both, *args)
    if (found := judged(program, values, gradients)) is not None:
        return found
    alone, others = _run(in_true_sizes(program, plan), *program.args())
    if (found := judged(program, alone, gradients)) is not None:
        return found
    return ("names", f"names that meet in one fused loop: {met + others}") if met + others else None


def _run(function: Callable[..., Any], *args: Any) -> tuple[Any, list[tuple[str, ...]]]:
    compiled = jax.jit(function).lower(*args).compile()
    return jax.block_until_ready(compiled(*args)), nearly_shared_names(compiled.as_text())
