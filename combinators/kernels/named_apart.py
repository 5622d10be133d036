"""Instructions of JAX and of XLA with names that do not meet.

XLA compiles a fused loop of a CPU or GPU (jaxlib 0.10 to 0.12) as functions named after its instructions, with `_` for
whatever is no letter or digit. JAX calls an instruction after its primitive, `dynamic_slice.12`; XLA calls those that
it makes itself after the operation, `dynamic-slice.12`. Where both stand in one loop, both are the function
`dynamic_slice_12`, and one is run in place of the other: a wrong result without a word. So the primitives whose names
differ from XLA's in `-` alone call their instructions by a name that XLA gives to nothing.
"""

from __future__ import annotations

from typing import Any

from jax import lax
from jax.interpreters import mlir  # noqa: TID251 - the public place of the rules of primitives

FUSED = (
    "dynamic_slice",
    "dynamic_update_slice",
    "is_finite",
    "reduce_precision",
    "reduce_window",
    "shift_left",
    "shift_right_arithmetic",
    "shift_right_logical",
)
"""Those of them that a fused loop may hold: `dynamic_slice` is called `lax_dynamic_slice` in compiled programs."""


def name_apart() -> None:
    """Rename them in every program of this process that is lowered from now on; nothing but names changes.

    JAX has one table of rules for a process. A transformation of our own programs would not do: slices are also
    written by the rules of loops, by derivatives and by the programs that call ours, all of which end in one loop.
    """
    for name in FUSED:
        primitive = getattr(lax, f"{name}_p")
        # A version of JAX that keeps its rules elsewhere is left as it is; tests look at what is lowered.
        entry = getattr(mlir, "_lowerings", {}).get(primitive)
        if entry is not None:
            mlir.register_lowering(primitive, _renamed(entry.rule, f"lax_{name}"), inline=entry.inline)


def _renamed(rule: Any, name: str) -> Any:
    def renamed(ctx: Any, *args: Any, **params: Any) -> Any:
        # XLA calls an instruction what the last part of its path is.
        path = f"{ctx.name_stack}/{name}" if ctx.name_stack.stack else name
        with mlir.ir.Location.name(f"{name}:", childLoc=mlir.ir.Location.name(path)):
            return rule(ctx, *args, **params)

    return renamed
