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
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import AbstractMesh, AxisType

import tapestry_jax as tp

DEVICE = {"v5p": 102_803_439_616, "h100": 84_978_434_048}
"""Bytes of memory, as the compilers know them: 95.74 GiB, 79.14 GiB."""
ADAM = 12
"""Bytes for each parameter that no program of value and gradients holds: a float32 copy and two moments."""


@dataclass(frozen=True)
class Sizes:
    """Of the model and of what it is given."""

    layers: int = 96
    embed: int = 12288
    heads: int = 96
    vocab: int = 50304
    batch: int = 512
    seq: int = 2048
    data: int = 64
    model: int = 8


def loss(model: Any, tokens: Any, targets: Any) -> Any:
    """The mean cross-entropy of the next tokens."""
    return tp.nnx.cross_entropy(model(tokens), targets)


def decoder(sizes: Sizes = Sizes()) -> Any:
    """The model, without its arrays."""
    config = tp.nnx.TransformerConfig(
        layers=sizes.layers,
        embed=sizes.embed,
        heads=sizes.heads,
        vocab=sizes.vocab,
        max_len=sizes.seq,
        dtype=jnp.bfloat16,
        param_dtype=jnp.bfloat16,
        stacked=True,
    )
    return nnx.eval_shape(lambda: tp.nnx.Transformer(config, rngs=nnx.Rngs(0)))


def planned(graph: Any, mesh: Any, chunks: int) -> Any:
    """The plan: each device works on its share of the batch in so many chunks, one after the other.

    Args:
      graph: of `loss`.
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


def candidates(graph: Any, mesh: Any, sizes: Sizes) -> Iterator[tuple[int, Any, Any]]:
    """Chunks, plan and memory, from the fewest chunks on."""
    chunks = 1
    while sizes.data * chunks <= sizes.batch:
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
    sizes, limit = Sizes(), DEVICE[chosen.machine.partition(":")[0]]
    axes = (("data", sizes.data), ("model", sizes.model))
    abstract = AbstractMesh(tuple(size for _, size in axes), tuple(name for name, _ in axes), (AxisType.Auto,) * 2)
    module = decoder(sizes)
    tokens = jax.ShapeDtypeStruct((sizes.batch, sizes.seq), jnp.int32)
    count = parameters(module)
    state = ADAM * count // (sizes.data * sizes.model)
    print(f"{count / 1e9:.1f} billion parameters, {state / 1e9:.2f} GB of a device for Adam")
    started = time.perf_counter()
    graph = tp.trace(loss, module, tokens, tokens)
    fitting: int | None = chosen.chunks
    for chunks, _, memory in candidates(graph, abstract, sizes):
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
        seen = plan.compile_only(tp.topology(chosen.machine, data=sizes.data, model=sizes.model), grad=(0,))
        print(f"\ncompiled in {time.perf_counter() - started:.0f} s\n{seen}")
    return 0


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    sys.exit(main())
