"""What the production compilers for TPU and CUDA say of every Loom row and of transformers: ours, automatic, by hand.

Cycles, bytes and temporaries of a compiler are exact and repeat; nothing is timed, and no TPU or GPU is needed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import NamedSharding

import tapestry_jax as tp
from benchmarks import (
    aot_cases,
    loom_attention,
    loom_cross_entropy,
    loom_fft,
    loom_flash,
    loom_microbatch,
    loom_pipeline,
    loom_scan,
    loom_stencil,
    loom_topk,
    plain,
)
from benchmarks.loom import Case, lowered_for
from benchmarks.models import PLANS, Sizes, model_loss
from tapestry_jax.hlo.collectives import collectives_of
from tapestry_jax.hlo.cycles import costed, lookups, unestimated
from tapestry_jax.hlo.text import read

MACHINES = ("v5e:2x4", "v5p:2x2x2", "v6e:2x4", "h100:1x8")
AUTOMATIC, BY_HAND = 1.0, 1.02
# At full width a compiler takes minutes for some: these sizes keep the proportions.
SIZES = {
    "transformer of 2 layers, 4 x 512 tokens": Sizes(layers=2, embed=1024, heads=16, vocab=32768, batch=4, seq=512),
    "transformer of 2 layers, 16 x 2048 tokens": Sizes(layers=2, embed=1024, heads=16, vocab=32768, batch=16, seq=2048),
    "transformer of 12 stacked layers in bfloat16, 8 x 512 tokens": Sizes(
        layers=12, embed=1024, heads=16, vocab=32768, batch=8, seq=512, stacked=True
    ),
}
LABELS = ("ours", "automatic", "by hand")


@dataclass(frozen=True)
class Said:
    """What a compiler says of a program; None where it does not say.

    Attributes:
      cycles: estimated, trip counts included; None too where some kernels have no estimate.
      accessed: bytes of memory read and written, a loop's body counted once.
      temporaries: bytes of a device; compilers for TPUs count gaps between blocks among them, more than once.
      peak: bytes of a device that are alive at once at most, arguments, results and what lies on the chip among them.
      sent: bytes of all collectives.
      hidden: the share of them that is sent while something is computed.
      lookups: executions of gathers and scatters, for which no cycles are estimated; they are in no sum.
      kernels: executions of other kernels without an estimate.
      collectives: executions of each kind.
    """

    cycles: int | None
    accessed: float | None
    temporaries: int
    peak: int
    sent: int
    hidden: float
    lookups: int = 0
    kernels: int = 0
    collectives: Mapping[str, int] = field(default_factory=dict[str, int])


def said(program: Any, mesh: Any) -> Said:
    """Read what a compiler says of a compiled program."""
    module = read(program.as_text())
    costs = costed(module)
    found = collectives_of(module, mesh)
    sent = sum(each.bytes * each.times for each in found)
    enclosed = sum(each.bytes * each.times for each in found if each.enclosed)
    executions: Counter[str] = Counter()
    for each in found:
        executions[each.kind] += each.times
    kernels = unestimated(module) if costs else 0
    memory, analysis = program.memory_analysis(), program.cost_analysis()
    analysis = (analysis[0] if isinstance(analysis, list) else analysis) or {}
    return Said(
        # libtpu puts a Pallas kernel of its own in the place of an attention that is written out, and estimates none.
        cycles=None if kernels else sum(each.cycles * each.times for each in costs) or None,
        accessed=analysis.get("bytes accessed"),
        temporaries=memory.temp_size_in_bytes,
        peak=memory.peak_memory_in_bytes,
        sent=sent,
        hidden=enclosed / sent if sent else 1.0,
        lookups=lookups(module) if costs else 0,
        kernels=kernels,
        collectives=dict(sorted(executions.items())),
    )


CASES: dict[str, Callable[[], Case]] = {
    "MLP": aot_cases.mlp_case,
    "FSDP at half the width": lambda: aot_cases.fsdp_case(8, 8192, 512, 2048),
    "ring": loom_attention.case,
    "ring, causal": lambda: loom_attention.case(causal=True),
    "ring, gradients": lambda: loom_attention.case(gradients=True),
    "ring, bfloat16": lambda: loom_attention.case(False, 8, 8192, 128, True, jnp.bfloat16),
    "ring, bfloat16, written out": lambda: loom_attention.case(False, 8, 8192, 128, True, jnp.bfloat16, True),
    "microbatch": loom_microbatch.case,
    "attention in chunks": loom_flash.case,
    "cross-entropy in chunks": loom_cross_entropy.case,
    "cross-entropy, rows in chunks": partial(loom_cross_entropy.case, chunks=4, over="token"),
    "cross-entropy, bfloat16, in chunks": partial(loom_cross_entropy.case, dtype=jnp.bfloat16),
    "cross-entropy, bfloat16, rows in chunks": partial(
        loom_cross_entropy.case, 4096, 512, 32768, 4, "token", jnp.bfloat16
    ),
    "heat": loom_stencil.heat,
    "deep stencil": loom_stencil.deep,
    "pipeline": loom_pipeline.case,
    "pipeline, wide": lambda: loom_pipeline.case(16, 8192, 2048, 8192, 16, jnp.bfloat16),
    "recurrence": loom_scan.case,
    "top": loom_topk.case,
    "FFT": loom_fft.case,
}
"""Every Loom row, at the sizes of its benchmark, and some at sizes that users of such machines have."""


def names() -> tuple[str, ...]:
    """The names of all rows, transformers first: what most users run."""
    return (*SIZES, *CASES)


def lowered(name: str, label: str, machine: str) -> tuple[Any, Any, str]:
    """One program of a row, lowered for a machine, its mesh and the row's title; by hand there is no transformer.

    Args:
      name: of `names()`.
      label: of `LABELS`.
      machine: of eight devices.
    """
    if name in SIZES:
        return (*_transformer(SIZES[name], label, machine), name)
    case = _without_arrays(CASES[name])
    mesh = tp.mesh(devices(machine)[: math.prod(case.mesh.values())], **case.mesh)
    placed = tuple(
        jax.ShapeDtypeStruct(jnp.shape(argument), jnp.result_type(argument), sharding=NamedSharding(mesh, spec))
        for argument, spec in zip(case.arguments, case.given, strict=True)
    )
    if label == "automatic":
        return lowered_for(case.automatic, case, mesh, placed), mesh, case.name
    if label == "by hand":
        return lowered_for(case.by_hand(mesh), case, mesh, placed), mesh, case.name
    plan = tp.plan(tp.trace(case.program, *case.arguments), mesh, case.entries, **case.options)
    return lowered_for(plan.compile(), case, mesh, placed), mesh, case.name


def _without_arrays(make: Callable[[], Case]) -> Case:
    """A case whose arguments are types: compilers want no numbers."""
    made: list[Case] = []

    def arguments() -> tuple[Any, ...]:
        made.append(make())
        return made[0].arguments

    types = jax.eval_shape(arguments)
    return replace(made[0], arguments=types)


def _transformer(sizes: Sizes, label: str, machine: str) -> tuple[Any, Any]:
    """Value and gradients, batch over `data`, heads, mlp and vocab over `model`."""
    mesh = tp.mesh(devices(machine), data=2, model=4)
    module = nnx.eval_shape(lambda: tp.nnx.Transformer(sizes.config, rngs=nnx.Rngs(0)))
    tokens = jax.ShapeDtypeStruct((sizes.batch, sizes.seq), jnp.int32)
    plan = tp.plan(tp.trace(model_loss, module, tokens, tokens), mesh, PLANS["batch, heads, mlp, vocab"])
    structs = jax.tree.map(
        lambda leaf, where: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where),
        (nnx.state(module), tokens, tokens),
        plan.in_shardings,
    )
    loss = plan.compile() if label == "ours" else plain.stacked_loss if sizes.stacked else plain.loss
    made = (plan.out_shardings, plan.in_shardings[0])
    step = jax.jit(jax.value_and_grad(loss), in_shardings=plan.in_shardings, out_shardings=made)
    return step.lower(*structs), mesh


@lru_cache
def devices(machine: str) -> tuple[Any, ...]:
    """The compile-only devices of a machine of eight."""
    return tuple(tp.topology(machine, all=8).devices.flat)
