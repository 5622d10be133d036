"""What the production compilers for TPU and CUDA say of every Loom row and of transformers: ours, automatic, by hand.

Cycles, bytes and temporaries of a compiler are exact and repeat; nothing is timed, and no TPU or GPU is needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
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
from benchmarks.loom import Case, compile_for
from benchmarks.models import PLANS, Sizes, model_loss
from benchmarks.row import Row
from tapestry_jax.hlo.collectives import collectives_of
from tapestry_jax.hlo.cycles import costed, unestimated
from tapestry_jax.hlo.text import read

MACHINES = ("v5e:2x4", "v5p:2x2x2", "v6e:2x4", "h100:1x8")
AUTOMATIC, BY_HAND = 1.0, 1.02
TRANSFORMERS = {
    "transformer of 2 layers": Sizes(layers=2, embed=1024, heads=16, vocab=32768, batch=16, seq=2048),
}


@dataclass(frozen=True)
class Said:
    """What a compiler says of a program; None where it does not say.

    Attributes:
      cycles: estimated, trip counts included; None too where some kernels have no estimate.
      accessed: bytes of memory read and written, a loop's body counted once.
      temporaries: bytes of a device.
      sent: bytes of all collectives.
      hidden: the share of them that is sent while something is computed.
    """

    cycles: int | None
    accessed: float | None
    temporaries: int
    sent: int
    hidden: float


def said(program: Any, mesh: Any) -> Said:
    """Read what a compiler says of a compiled program."""
    module = read(program.as_text())
    costs = costed(module)
    found = collectives_of(module, mesh)
    sent = sum(each.bytes * each.times for each in found)
    enclosed = sum(each.bytes * each.times for each in found if each.enclosed)
    analysis = program.cost_analysis()
    analysis = (analysis[0] if isinstance(analysis, list) else analysis) or {}
    return Said(
        # libtpu puts a Pallas kernel of its own in the place of an attention that is written out, and estimates none.
        cycles=None if unestimated(module) else sum(each.cycles * each.times for each in costs) or None,
        accessed=analysis.get("bytes accessed"),
        temporaries=program.memory_analysis().temp_size_in_bytes,
        sent=sent,
        hidden=enclosed / sent if sent else 1.0,
    )


def cases() -> tuple[Case, ...]:
    """Every Loom row, at the sizes of its benchmark; an MLP, and layers under FSDP."""
    return (
        aot_cases.mlp_case(),
        aot_cases.fsdp_case(),
        loom_attention.case(),
        loom_attention.case(causal=True),
        loom_attention.case(gradients=True),
        loom_microbatch.case(),
        loom_flash.case(),
        loom_cross_entropy.case(),
        loom_stencil.heat(),
        loom_stencil.deep(),
        loom_pipeline.case(),
        loom_scan.case(),
        loom_topk.case(),
        loom_fft.case(),
    )


def programs(case: Case, machine: str) -> Iterator[tuple[str, Said]]:
    """The three programs of a case, as the compiler of a machine sees them."""
    mesh = tp.mesh(devices(machine)[: math.prod(case.mesh.values())], **case.mesh)
    placed = tuple(
        jax.ShapeDtypeStruct(jnp.shape(argument), jnp.result_type(argument), sharding=NamedSharding(mesh, spec))
        for argument, spec in zip(case.arguments, case.given, strict=True)
    )
    plan = tp.plan(tp.trace(case.program, *case.arguments), mesh, case.entries, **case.options)
    made = {"ours": plan.compile(), "automatic": case.automatic, "by hand": case.by_hand(mesh)}
    for label, function in made.items():
        yield label, said(compile_for(function, case, mesh, placed), mesh)


def transformer(sizes: Sizes, machine: str) -> Iterator[tuple[str, Said]]:
    """Value and gradients of a transformer, batch over `data`, heads, mlp and vocab over `model`."""
    mesh = tp.mesh(devices(machine), data=2, model=4)
    module = nnx.eval_shape(lambda: tp.nnx.Transformer(sizes.config, rngs=nnx.Rngs(0)))
    tokens = jax.ShapeDtypeStruct((sizes.batch, sizes.seq), jnp.int32)
    plan = tp.plan(tp.trace(model_loss, module, tokens, tokens), mesh, PLANS["batch, heads, mlp, vocab"])
    structs = jax.tree.map(
        lambda leaf, where: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where),
        (nnx.state(module), tokens, tokens),
        plan.in_shardings,
    )
    made = (plan.out_shardings, plan.in_shardings[0])
    for label, loss in (("ours", plan.compile()), ("automatic", plain.loss)):
        step = jax.jit(jax.value_and_grad(loss), in_shardings=plan.in_shardings, out_shardings=made)
        yield label, said(step.lower(*structs).compile(), mesh)


@lru_cache
def devices(machine: str) -> tuple[Any, ...]:
    """The compile-only devices of a machine of eight."""
    return tuple(tp.topology(machine, all=8).devices.flat)


def rows(machines: Sequence[str] = MACHINES, only: str = "") -> list[Row]:
    """The table.

    Args:
      machines: of eight devices.
      only: part of the names of the rows that are wanted.
    """
    found: list[Row] = []
    for machine in machines:
        for case in cases():
            if only in case.name:
                found += _rows(f"{machine}, {case.name}", dict(programs(case, machine)))
        for name, sizes in TRANSFORMERS.items():
            if only in name:
                found += _rows(f"{machine}, {name}", dict(transformer(sizes, machine)))
    return found


def _rows(name: str, programs: dict[str, Said]) -> Iterator[Row]:
    ours = programs.pop("ours")
    for label, theirs in programs.items():
        target = AUTOMATIC if label == "automatic" else BY_HAND
        if ours.cycles and theirs.cycles:
            yield Row(f"{name}: cycles, beside {label}", ours.cycles, theirs.cycles, "cycles", target)
        if ours.accessed and theirs.accessed:
            yield Row(f"{name}: bytes accessed, beside {label}", ours.accessed, theirs.accessed, "B", None)
        yield Row(f"{name}: temporaries, beside {label}", ours.temporaries, theirs.temporaries, "B", target)
        yield Row(f"{name}: sent, beside {label}", ours.sent, theirs.sent, "B", None)
    yield Row(f"{name}: sent behind compute", ours.hidden, 1.0, "", None, "value")
