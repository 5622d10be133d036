"""The plans that `tp.search` finds, with prices, memory and gaps: `python -m benchmarks.found_plans > before.json`.

What makes searching faster should find the same plans. Run it before and after, and compare the files: times apart,
which stand on standard error, they are equal to the last digit. `--only` takes some of the cases; a case is searched
in the process that asks, so that only the first of several says what a first search takes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import AbstractMesh, AxisType

import tapestry_jax as tp
from benchmarks.models import Sizes, model_loss

Case = tuple[tp.Graph, Any, str, Mapping[str, Any]]
"""A program, a mesh, a machine, and what else a search is asked."""

GPT3 = Sizes(layers=96, embed=12288, heads=96, vocab=50304, batch=512, seq=2048, stacked=True)
LLAMA = Sizes(layers=32, embed=4096, heads=32, vocab=32000, batch=64, seq=8192, stacked=True)


def mesh(**axes: int) -> AbstractMesh:
    """Devices that are not there."""
    return AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


def decoder(sizes: Sizes, *, stacked: bool = True) -> tp.Graph:
    """A decoder and its loss, in bfloat16.

    Args:
      sizes: of the model.
      stacked: whether its layers are one stack, or stand one by one.
    """
    config = replace(sizes.config, dtype=jnp.bfloat16, stacked=stacked)
    module = nnx.eval_shape(lambda: tp.nnx.Transformer(config, rngs=nnx.Rngs(0)))
    tokens = jax.ShapeDtypeStruct((sizes.batch, sizes.seq), jnp.int32)
    return tp.trace(model_loss, module, tokens, tokens)


def product(of: str) -> Any:
    """A product by its signature."""
    return tp.einsum(of)


def typed(dtype: str = "bfloat16", **sizes: int) -> tp.TensorType:
    """The type of an argument."""
    return tp.TensorType(sizes, dtype)


def residual(x: Any, up: Any, down: Any) -> Any:
    """Two products, and what goes around them."""
    hidden = tp.Map(jax.nn.gelu)(product("batch embed, embed mlp -> batch mlp")(x, up))
    return x + product("batch mlp, mlp embed -> batch embed")(hidden, down)


def layers(count: int, batch: int, embed: int) -> tp.Graph:
    """A stack of such layers."""
    types = (
        typed(batch=batch, embed=embed),
        typed(layer=count, embed=embed, mlp=4 * embed),
        typed(layer=count, mlp=4 * embed, embed=embed),
    )
    return tp.trace(lambda x, up, down: tp.stack(residual, count)(x, up, down), *types)


def wide(batch: int, embed: int, hidden: int) -> tp.Graph:
    """Two products with a nonlinearity between them."""

    def layer(x: Any, up: Any, down: Any) -> Any:
        hidden = tp.Map(jax.nn.gelu)(product("batch embed, embed mlp -> batch mlp")(x, up))
        return product("batch mlp, mlp out -> batch out")(hidden, down)

    return tp.trace(
        layer, typed(batch=batch, embed=embed), typed(embed=embed, mlp=hidden), typed(mlp=hidden, out=embed)
    )


def heat() -> tp.Graph:
    """Turns of a stencil."""

    def inside(x: Any) -> Any:
        return (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]) * 0.25

    step = tp.Map(inside, "(y+[dy]-1) (x+[dx]-1) -> y x", sizes={"dy": 3, "dx": 3}, boundary="zero")
    return tp.trace(lambda image: tp.iterate(step, 64)(image), typed("float32", y=2**16, x=2**16))


def experts() -> tp.Graph:
    """Products with a gate that has slots."""

    def routed(gate: Any, x: Any, up: Any, down: Any) -> Any:
        sent = product("batch expert slot, batch embed -> expert slot embed")(gate, x)
        hidden = tp.Map(jax.nn.gelu)(product("expert slot embed, expert embed mlp -> expert slot mlp")(sent, up))
        made = product("expert slot mlp, expert mlp embed -> expert slot embed")(hidden, down)
        return product("batch expert slot, expert slot embed -> batch embed")(gate, made)

    gate, x = typed(batch=8192, expert=64, slot=256), typed(batch=8192, embed=4096)
    up, down = typed(expert=64, embed=4096, mlp=16384), typed(expert=64, mlp=16384, embed=4096)
    return tp.trace(routed, gate, x, up, down)


def long_attention() -> tp.Graph:
    """Two heads over a million places."""

    def attend(q: Any, k: Any, v: Any) -> Any:
        return tp.attention(q, k.rename(seq="keys"), v.rename(seq="keys"), over="keys", causal=True)

    heads = typed(batch=1, heads=2, seq=2**20, dim=128)
    return tp.trace(attend, heads, heads, heads)


def words(token: int, embed: int, vocab: int) -> tp.Graph:
    """A loss over a vocabulary."""

    def loss(x: Any, table: Any, targets: Any) -> Any:
        return tp.nnx.cross_entropy(product("token embed, embed vocab -> token vocab")(x, table), targets)

    return tp.trace(loss, typed(token=token, embed=embed), typed(embed=embed, vocab=vocab), typed("int32", token=token))


def _searched(graph: Callable[[], tp.Graph], on: AbstractMesh, machine: str, **options: Any) -> Callable[[], Case]:
    return lambda: (graph(), on, machine, {"grad": True, **options})


EIGHT, WIDE = mesh(data=8, model=8), mesh(data=64, model=8)
GPU = {"memory": "80GB", "grad": (0,)}
SMALLER = replace(GPT3, batch=64)
CASES: dict[str, Callable[[], Case]] = {
    "GPT-3, stacked, 512 H100": _searched(lambda: decoder(GPT3), WIDE, "h100", **GPU),
    "GPT-3, stacked, 64 H100": _searched(lambda: decoder(SMALLER), EIGHT, "h100", **GPU),
    "GPT-3, stacked, 512 v5p": _searched(lambda: decoder(GPT3), WIDE, "v5p", memory="95GB", grad=(0,)),
    "GPT-3, written out, 512 H100": _searched(lambda: decoder(GPT3, stacked=False), WIDE, "h100", **GPU),
    "LLaMA-8B, stacked, 64 H100": _searched(lambda: decoder(LLAMA), EIGHT, "h100", **GPU),
    "24 layers, written out, 512 H100": _searched(
        lambda: decoder(replace(GPT3, layers=24), stacked=False), WIDE, "h100", memory="60GB", grad=(0,)
    ),
    "small, stacked, 64 H100": _searched(
        lambda: decoder(Sizes(layers=16, embed=1024, heads=16, vocab=32768, batch=64, seq=1024, stacked=True)),
        EIGHT,
        "h100",
        **GPU,
    ),
    "wide": _searched(lambda: wide(512, 8192, 65536), EIGHT, "h100"),
    "wide, v5p": _searched(lambda: wide(512, 8192, 65536), EIGHT, "v5p:4x4x4"),
    "large batch": _searched(lambda: wide(2**20, 512, 2048), EIGHT, "h100"),
    "parameters": _searched(lambda: layers(64, 2**21, 8192), EIGHT, "h100"),
    "activations": _searched(lambda: layers(96, 2**21, 2048), EIGHT, "h100"),
    "heat": _searched(heat, EIGHT, "h100", grad=False),
    "experts": _searched(experts, EIGHT, "h100:8x8"),
    "stages": _searched(lambda: layers(64, 4096, 16384), mesh(stage=8, model=8), "h100:8x8"),
    "attention": _searched(long_attention, EIGHT, "h100", grad=False),
    "words, 500 MB": _searched(lambda: words(4096, 512, 32768), mesh(data=1), "h100", memory="500MB"),
    "words": _searched(lambda: words(2**22, 4096, 2**18), EIGHT, "h100"),
}
"""Decoders, and what people designed (`tests/tapestry_jax/searching/test_rediscovers.py`)."""


def described(case: Case) -> dict[str, Any]:
    """What is found: what is asked for, in words, and its price, memory and gap.

    Args:
      case: what is searched.
    """
    graph, on, machine, options = case
    plan = tp.search(graph, on, machine, **options)
    grad = options["grad"]
    asked = {field: repr(getattr(plan, field)) for field in ("entries", "ops", "inputs", "remat")}
    return asked | {"seconds": plan.cost(machine, grad).seconds, "memory": plan.memory(grad).total, "gap": plan.gap}


def main(arguments: list[str] | None = None) -> int:
    """Search, and print what is found as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.found_plans", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), help="the cases to search")
    found: dict[str, Any] = {}
    for name in parser.parse_args(arguments).only:
        case, began = CASES[name](), time.process_time()
        found[name] = described(case)
        print(f"{name}: {time.process_time() - began:.1f} s of CPU", file=sys.stderr, flush=True)
    print(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    sys.exit(main())
