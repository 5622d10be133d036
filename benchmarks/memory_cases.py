"""Programs with plans whose memory is held against the compilers: rows of the gallery, and transformers."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

import tapestry_jax as tp
from benchmarks.models import Sizes, model_loss

GALLERY = Path(__file__).parents[1] / "examples" / "gallery"
_GROWN = {
    "batch_norm": "batch",
    "cross_entropy": "token",
    "data_parallelism": "batch",
    "flash_attention": "seq",
    "fsdp": "batch",
    "megatron": "batch",
    "parallel_scan": "time",
    "pencil_fft": "height",
    "pipeline": "batch",
    "ring_attention": "seq",
    "stencil": "y",
}
"""Rows of the gallery but for stored statistics, which call back to Python; and which size is larger than its own."""
_TIMES = 8
"""How many times: kilobytes say little of a rule."""
TENSOR = {"batch": "data", "heads": "model", "mlp": "model"}
VOCAB = TENSOR | {"vocab": "model"}
BOTH = {"data": 2, "model": 4}
LINE = {"data": 8}
LAYERS = Sizes(layers=2, embed=256, heads=8, vocab=2048, batch=16, seq=256)
"""Layers that stand one by one, in float32."""
STACK = Sizes(layers=8, embed=256, heads=8, vocab=2048, batch=16, seq=256, stacked=True)
"""Stacked layers, in bfloat16."""
LONG = Sizes(layers=4, embed=256, heads=8, vocab=2048, batch=1, seq=4096, stacked=True)
"""One sequence, cut over the mesh."""

Plan = Callable[[tuple[Any, ...]], Any]
"""From devices to a plan."""


def cases() -> Mapping[str, Plan]:
    """All of them by name, transformers first."""
    return {**TRANSFORMERS, **dict(_gallery())}


@cache
def transformer(sizes: Sizes) -> Any:
    """The loss of a model, traced; there are no arrays."""
    module = nnx.eval_shape(lambda: tp.nnx.Transformer(sizes.config, rngs=nnx.Rngs(0)))
    tokens = jax.ShapeDtypeStruct((sizes.batch, sizes.seq), jnp.int32)
    return tp.trace(model_loss, module, tokens, tokens)


def _planned(
    sizes: Sizes, entries: Mapping[str, Any], mesh: Mapping[str, int], fsdp: bool = False, **options: Any
) -> Plan:
    def plan(devices: tuple[Any, ...]) -> Any:
        found = tp.plan(transformer(sizes), tp.mesh(devices, **mesh), entries, **options)
        return tp.fsdp(found, "data") if fsdp else found

    return plan


_RING = {"seq": "data", "keys": tp.ring("data")}
_STAGES = {"layer": "stage", "heads": "model", "mlp": "model", "batch": tp.chunks(4)}
_AGAIN = {"decoder": True}
TRANSFORMERS: dict[str, Plan] = {
    "one layer, heads and mlp": _planned(Sizes(1, 256, 8, 2048, 16, 256), TENSOR, BOTH),
    "two layers, heads and mlp": _planned(LAYERS, TENSOR, BOTH),
    "two layers, vocabulary too": _planned(LAYERS, VOCAB, BOTH),
    "two layers, remat": _planned(LAYERS, VOCAB, BOTH, remat=_AGAIN),
    "two layers, FSDP": _planned(LAYERS, {"batch": "data"}, LINE, fsdp=True),
    "stack": _planned(STACK, VOCAB, BOTH),
    "stack, remat": _planned(STACK, VOCAB, BOTH, remat=_AGAIN),
    "stack, remat, dots": _planned(STACK, VOCAB, BOTH, remat={"decoder": "dots"}),
    "stack, two chunks, remat": _planned(STACK, VOCAB | {"batch": ("data", tp.chunks(2))}, BOTH, remat=_AGAIN),
    "stack, FSDP, remat": _planned(STACK, {"batch": "data"}, LINE, fsdp=True, remat=_AGAIN),
    "stack, FSDP and heads, remat": _planned(STACK, VOCAB, BOTH, fsdp=True, remat=_AGAIN),
    "stack, pipeline": _planned(STACK, _STAGES, {"stage": 4, "model": 2}),
    "stack, ring": _planned(LONG, _RING, LINE),
    "stack, ring, remat": _planned(LONG, _RING, LINE, remat=_AGAIN),
    "stack, ring, FSDP, remat": _planned(LONG, _RING, LINE, fsdp=True, remat=_AGAIN),
}


def _gallery() -> Iterator[tuple[str, Plan]]:
    for name in _GROWN:
        for number, planned in enumerate(_example(name).plans):
            yield f"{name}, {planned.known_as}", partial(_row, name, number)


def _row(name: str, number: int, devices: tuple[Any, ...]) -> Any:
    example = _example(name)
    planned = example.plans[number]
    mesh = tp.mesh(devices[: math.prod(planned.mesh.values())], **planned.mesh)
    return tp.plan(tp.trace(example.program, *example.arguments), mesh, planned.entries, **planned.options)


@cache
def _example(name: str) -> Any:
    """A row whose arguments are types; its modules import one another by their names."""
    sys.path.insert(0, str(GALLERY))
    try:
        make = import_module(name).example
    finally:
        sys.path.remove(str(GALLERY))
    size = inspect.signature(make).parameters[_GROWN[name]]
    made: list[Any] = []

    def arguments() -> Any:
        made.append(make(**{size.name: size.default * _TIMES}))
        return made[0].arguments

    types = jax.eval_shape(arguments)
    return replace(made[0], arguments=types)
