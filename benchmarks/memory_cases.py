"""Programs with plans whose memory is held against the compilers: rows of the gallery, and transformers."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

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
_ENOUGH = 2**30
"""So many bytes of a device are enough for what is grown until a device is filled."""
TENSOR = {"batch": "data", "heads": "model", "mlp": "model"}
VOCAB = TENSOR | {"vocab": "model"}
BOTH = {"data": 2, "model": 4}
LINE = {"data": 8}


@dataclass(frozen=True)
class Models:
    """The sizes of transformers.

    Attributes:
      layers: layers that stand one by one, in float32.
      stack: stacked layers, in bfloat16.
      long: one sequence, cut over the mesh.
    """

    layers: Sizes
    stack: Sizes
    long: Sizes


SMALL = Models(
    Sizes(layers=2, embed=256, heads=8, vocab=2048, batch=16, seq=256),
    Sizes(layers=8, embed=256, heads=8, vocab=2048, batch=16, seq=256, stacked=True),
    Sizes(layers=4, embed=256, heads=8, vocab=2048, batch=1, seq=4096, stacked=True),
)
"""Megabytes, which TPUs have room for on the chip."""
FULL = Models(
    Sizes(layers=2, embed=2048, heads=16, vocab=32768, batch=16, seq=1024),
    Sizes(layers=12, embed=2048, heads=16, vocab=32768, batch=16, seq=1024, stacked=True),
    Sizes(layers=12, embed=2048, heads=16, vocab=32768, batch=1, seq=16384, stacked=True),
)
"""Gigabytes, as models have them that fill a device."""

Plan = Callable[[tuple[Any, ...]], Any]
"""From devices to a plan."""


def cases(full: bool = False) -> Mapping[str, Plan]:
    """All of them by name, transformers first; at small sizes, or such as fill a device."""
    return {**_transformers(FULL if full else SMALL), **dict(_gallery(full))}


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


def _transformers(of: Models) -> dict[str, Plan]:
    one = replace(of.layers, layers=1)
    return {
        "one layer, heads and mlp": _planned(one, TENSOR, BOTH),
        "two layers, heads and mlp": _planned(of.layers, TENSOR, BOTH),
        "two layers, vocabulary too": _planned(of.layers, VOCAB, BOTH),
        "two layers, remat": _planned(of.layers, VOCAB, BOTH, remat=_AGAIN),
        "two layers, FSDP": _planned(of.layers, {"batch": "data"}, LINE, fsdp=True),
        "stack": _planned(of.stack, VOCAB, BOTH),
        "stack, remat": _planned(of.stack, VOCAB, BOTH, remat=_AGAIN),
        "stack, remat, dots": _planned(of.stack, VOCAB, BOTH, remat={"decoder": "dots"}),
        "stack, two chunks, remat": _planned(of.stack, VOCAB | {"batch": ("data", tp.chunks(2))}, BOTH, remat=_AGAIN),
        "stack, FSDP, remat": _planned(of.stack, {"batch": "data"}, LINE, fsdp=True, remat=_AGAIN),
        "stack, FSDP and heads, remat": _planned(of.stack, VOCAB, BOTH, fsdp=True, remat=_AGAIN),
        "stack, pipeline": _planned(of.stack, _STAGES, {"stage": 4, "model": 2}),
        "stack, ring": _planned(of.long, _RING, LINE),
        "stack, ring, remat": _planned(of.long, _RING, LINE, remat=_AGAIN),
        "stack, ring, FSDP, remat": _planned(of.long, _RING, LINE, fsdp=True, remat=_AGAIN),
    }


TRANSFORMERS = _transformers(SMALL)


def _gallery(full: bool) -> Iterator[tuple[str, Plan]]:
    for name in _GROWN:
        for number, planned in enumerate(_example(name, _TIMES).plans):
            yield f"{name}, {planned.known_as}", partial(_filling if full else _row, name, number)


def _filling(name: str, number: int, devices: tuple[Any, ...]) -> Any:
    """The row at the least of its sizes that needs enough of a device with gradients."""
    times = _TIMES
    while True:
        plan = _row(name, number, devices, times)
        needed = plan.memory(grad=True).total
        if needed >= _ENOUGH:
            return plan
        times *= 2 if needed > _ENOUGH // 4 else 4


def _row(name: str, number: int, devices: tuple[Any, ...], times: int = _TIMES) -> Any:
    example = _example(name, times)
    planned = example.plans[number]
    mesh = tp.mesh(devices[: math.prod(planned.mesh.values())], **planned.mesh)
    return tp.plan(tp.trace(example.program, *example.arguments), mesh, planned.entries, **planned.options)


@cache
def _example(name: str, times: int) -> Any:
    """A row whose arguments are types; its modules import one another by their names."""
    sys.path.insert(0, str(GALLERY))
    try:
        make = import_module(name).example
    finally:
        sys.path.remove(str(GALLERY))
    size = inspect.signature(make).parameters[_GROWN[name]]
    made: list[Any] = []

    def arguments() -> Any:
        made.append(make(**{size.name: size.default * times}))
        return made[0].arguments

    with _without_numbers():
        types = jax.eval_shape(arguments)
    return replace(made[0], arguments=types)


@contextmanager
def _without_numbers() -> Generator[None]:
    """Rows of the gallery draw nothing: their types alone are asked, and gigabytes of random numbers take minutes."""
    with ExitStack() as stack:
        for module in [*sys.modules.values()]:
            if hasattr(module, "normal") and Path(getattr(module, "__file__", None) or "/").parent == GALLERY:
                stack.enter_context(patch.object(module, "normal", _zeros))
        yield


def _zeros(*shape: int, seed: int = 0, scale: float = 1.0) -> Any:
    del seed, scale
    return jnp.zeros(shape)
