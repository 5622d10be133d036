"""A decoder of GPT-3's size on 512 accelerators: what fits is found by prediction, and held against the compiler.

    python -m benchmarks.gpt3 v5p:8x8x8               # needs the compilers: make aot installs them
    python -m benchmarks.gpt3 h100:64x8 --chunks 2
    python -m benchmarks.gpt3 v5p:8x8x8 --predict     # needs nothing: the mesh is abstract

96 stacked layers of 12,288 features and 96 heads, 512 sequences of 2,048 tokens, bfloat16: value and gradients. The
batch lies over `data`, which stores all parameters in pieces as well (FSDP); heads, hidden features and the vocabulary
over `model`.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import AbstractMesh, AxisType

import tapestry_jax as tp
from benchmarks.models import Sizes, model_loss

DEVICE = {"v5p": 102_803_439_616, "h100": 84_978_434_048}
"""Bytes of memory, as the compilers know them: 95.74 GiB, 79.14 GiB."""
ADAM = 12
"""Bytes for each parameter that no program of value and gradients holds: a float32 copy and two moments."""


SIZES = Sizes(layers=96, embed=12288, heads=96, vocab=50304, batch=512, seq=2048, stacked=True)
MESH = {"data": 64, "model": 8}


def decoder(sizes: Sizes) -> Any:
    """The model, without its arrays."""
    config = replace(sizes.config, dtype=jnp.bfloat16)
    return nnx.eval_shape(lambda: tp.nnx.Transformer(config, rngs=nnx.Rngs(0)))


def planned(graph: Any, mesh: Any, chunks: int) -> Any:
    """The plan: each device works on its share of the batch in so many chunks, one after the other.

    Args:
      graph: of `model_loss`.
      mesh: with the axes `data` and `model`.
      chunks: gradient accumulation; more of them take less memory, and gather the parameters more often.
    """
    entries = {
        "batch": ("data", tp.chunks(chunks)) if chunks > 1 else "data",
        "heads": "model",
        "mlp": "model",
        "vocab": "model",
        "keys": tp.chunks(4),
    }
    return tp.fsdp(tp.plan(graph, mesh, entries, remat={"decoder": True}), "data")


def candidates(graph: Any, mesh: Any) -> Iterator[tuple[int, Any, Any]]:
    """Chunks, plan and memory, from the fewest chunks on."""
    chunks = 1
    while MESH["data"] * chunks <= SIZES.batch:
        plan = planned(graph, mesh, chunks)
        yield chunks, plan, plan.memory(grad=(0,))
        chunks *= 2


def parameters(module: Any) -> int:
    """How many there are."""
    return sum(leaf.size for leaf in jax.tree.leaves(nnx.state(module)))


def main(arguments: list[str] | None = None) -> int:
    """Find the plan, and compile it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpt3", description="GPT-3 on 512 accelerators")
    parser.add_argument("machine", help="of 512 devices: v5p:8x8x8, h100:64x8")
    parser.add_argument(
        "--chunks", type=int, help="compile this plan, and not the one with the fewest chunks that fits"
    )
    parser.add_argument("--predict", action="store_true", help="compile nothing")
    chosen = parser.parse_args(arguments)
    limit = DEVICE[chosen.machine.partition(":")[0]]
    abstract = AbstractMesh(tuple(MESH.values()), tuple(MESH), (AxisType.Auto,) * len(MESH))
    module = decoder(SIZES)
    tokens = jax.ShapeDtypeStruct((SIZES.batch, SIZES.seq), jnp.int32)
    count = parameters(module)
    state = ADAM * count // math.prod(MESH.values())
    print(f"{count / 1e9:.1f} billion parameters, {state / 1e9:.2f} GB of a device for Adam")
    started = time.perf_counter()
    graph = tp.trace(model_loss, module, tokens, tokens)
    fitting: int | None = chosen.chunks
    for chunks, _, memory in candidates(graph, abstract):
        fits = memory.total + state <= limit
        fitting = chunks if fitting is None and fits else fitting
        print(
            f"{chunks} chunks: {(memory.total + state) / 1e9:.1f} GB of {limit / 1e9:.1f}{'' if fits else ', too much'}"
        )
    print(f"traced, planned and predicted in {time.perf_counter() - started:.1f} s")
    if fitting is None:
        print("nothing fits")
        return 1
    plan = planned(graph, abstract, fitting)
    print(f"\n{fitting} chunks: {plan.memory(grad=(0,))}")
    if not chosen.predict:
        started = time.perf_counter()
        seen = plan.compile_only(tp.topology(chosen.machine, **MESH), grad=(0,))
        print(f"\ncompiled in {time.perf_counter() - started:.0f} s\n{seen}")
    return 0


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    sys.exit(main())
