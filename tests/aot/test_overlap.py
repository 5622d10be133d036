"""With the options of a plan compilers hide more of what FSDP sends in a loop over layers, and send the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from tests.aot.plans import deep

LAYERS = 4
STORED = {"up": {"mlp": "data"}, "down": {"mlp": "data"}}
# Small ones would not do for CUDA: up to 30 MB the first gathers of both loops are joined, and short kernels hide less.
MACHINES = [
    # All but the first layer's gathers, of two loops over 4 layers, and all but the last layer's sums.
    ("h100:1x8", (jnp.float32, 16384, 1024), {"all-gather": 7 / 8, "reduce-scatter": 3 / 4}),
    # Without options: a v5e hides all but the first gather of a layer in the forward pass.
    ("v5e:2x4", (jnp.bfloat16, 4096, 512), {"all-gather": 3 / 4}),
]


@pytest.mark.parametrize(
    ("machine", "sizes", "least"), MACHINES, indirect=["machine"], ids=[name for name, *_ in MACHINES]
)
def test_options_hide_what_a_loop_over_layers_sends(machine: str, sizes: Any, least: dict[str, float]) -> None:
    dtype, tokens, embed = sizes
    shapes = ((tokens, embed), (LAYERS, embed, 4 * embed), (LAYERS, 4 * embed, embed))
    graph = tp.trace(deep, *(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes))
    plan = tp.plan(graph, tp.topology(machine, data=8), {"batch": "data"}, inputs=STORED)
    before = plan.compile_only(grad=True)
    after = plan.compile_only(grad=True, compiler_options=plan.compiler_options)
    assert after.sent == before.sent and not after.unpredicted
    if not plan.compiler_options:
        # Compilers for GPUs know the option no longer.
        least = least if machine.startswith("v5e") else {"all-gather": 3 / 4}
    hidden = {kind: share for (kind, _), share in after.overlapped.items()}
    assert all(hidden[kind] >= share for kind, share in least.items()), hidden
    more = sum(_hidden(after).values()) - sum(_hidden(before).values())
    assert more > 0 if plan.compiler_options else more == 0


@pytest.mark.parametrize("machine", ["v5e:2x4", "v5p:2x2x2", "v6e:2x4", "h100:1x8"], indirect=True)
def test_options_are_those_that_the_installed_compiler_takes(machine: str) -> None:
    plan = tp.plan(tp.trace(tp.Map(jnp.sin), tp.TensorType({"a": 8})), tp.topology(machine, data=8), {"a": "data"})
    plan.compile_only(compiler_options=plan.compiler_options)


def _hidden(seen: Any) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in seen.collectives:
        total[each.kind] += each.bytes * each.times * bool(each.enclosed)
    return total
