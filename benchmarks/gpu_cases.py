"""What is measured on one GPU: the rows of the Loom that make sense on one device, an MLP, layers, transformers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

import tapestry_jax as tp
from benchmarks import (
    aot_cases,
    loom_attention,
    loom_cross_entropy,
    loom_fft,
    loom_flash,
    loom_microbatch,
    loom_scan,
    loom_stencil,
    loom_topk,
    plain,
)
from benchmarks.loom import Case, with_gradients
from benchmarks.models import PLANS, Sizes, model_loss
from benchmarks.monoids import best_of_groups

OURS, AUTOMATIC, BY_HAND, CUDNN = "ours", "automatic", "by hand", "cuDNN"
SHARE = 3
"""A gradient takes two products more for each of the forward pass."""


@dataclass(frozen=True)
class Row:
    """Programs that compute the same.

    Attributes:
      name: in tables.
      programs: under labels, ours first.
      arguments: arrays, the same for all.
      flops: of matrix products, none computed twice.
      dtype: of their operands.
      plans: under the labels of our programs.
      gradients: as `tp.Plan.memory` takes them.
    """

    name: str
    programs: Mapping[str, Callable[..., Any]]
    arguments: tuple[Any, ...]
    flops: float
    dtype: str = "float32"
    plans: Mapping[str, tp.Plan] | None = None
    gradients: Any = False


def of_case(case: Case, flops: float, hand: Callable[..., Any] | None = None, **others: Mapping[str, Any]) -> Row:
    """A row of the Loom on one device; `others`: further plans, under labels, and what else computes the same."""
    mesh = tp.mesh(jax.devices()[:1], **dict.fromkeys(case.mesh, 1))
    graph = tp.trace(case.program, *case.arguments)
    plans = {OURS: tp.plan(graph, mesh, case.entries, **case.options)}
    plans |= {label: tp.plan(graph, mesh, entries, **case.options) for label, entries in others.items()}
    wrap = partial(with_gradients, count=case.gradients) if case.gradients else lambda function: function
    functions = {label: plan.compile() for label, plan in plans.items()}
    functions |= {AUTOMATIC: case.automatic, BY_HAND: hand or case.by_hand(mesh)}
    programs = {label: wrap(function) for label, function in functions.items()}
    gradients = tuple(range(case.gradients)) if case.gradients else False
    dtype = str(jnp.result_type(case.arguments[0]))
    times = SHARE if case.gradients else 1
    return Row(f"{case.name}, {dtype}", programs, case.arguments, times * flops, dtype, plans, gradients)


def attention(small: bool, dtype: Any = jnp.float32, causal: bool = False) -> Row:
    """Attention with gradients, keys in chunks; in bfloat16 beside cuDNN, which runs for our plan of whole keys too."""
    heads, seq, d, chunks = (2, 64, 16, 4) if small else (16, 8192, 128, 8)
    case = loom_flash.case(heads, seq, d, chunks)
    case = replace(case, arguments=tuple(each.astype(dtype) for each in case.arguments))
    flops = 4.0 * heads * seq * seq * d / (2 if causal else 1)
    if causal:
        case = replace(case, name=f"causal {case.name}", program=loom_attention.causal_attention)
        case = replace(case, automatic=loom_attention.automatic(True))
        hand = jax.checkpoint(loom_attention.automatic(True))
    else:
        hand = None
    if dtype == jnp.float32:
        return of_case(case, flops, hand)
    row = of_case(case, flops, hand, **{"ours, whole keys": {}})
    fused = with_gradients(partial(_fused, causal=causal), 3)
    return replace(row, programs={**row.programs, CUDNN: fused})


def _fused(q: Any, k: Any, v: Any, causal: bool) -> Any:
    q, k, v = (jnp.swapaxes(each, 0, 1)[None] for each in (q, k, v))
    implementation: Any = "cudnn" if jax.default_backend() == "gpu" else None
    out = jax.nn.dot_product_attention(q, k, v, is_causal=causal, implementation=implementation)
    return jnp.swapaxes(out[0], 0, 1)


def cross_entropy(small: bool, dtype: Any = jnp.float32) -> Row:
    """The loss of a head with gradients, the vocabulary in chunks."""
    tokens, embed, vocab, chunks = (64, 16, 128, 4) if small else (16384, 2048, 65536, 8)
    case = loom_cross_entropy.case(tokens, embed, vocab, chunks)
    x, w, targets = case.arguments
    case = replace(case, arguments=(x.astype(dtype), w.astype(dtype), targets))
    return of_case(case, 2.0 * tokens * embed * vocab)


def scan(small: bool) -> Row:
    """A recurrence along time: as it is, and in chunks; by hand rows are scanned, then their totals."""
    length, width = (256, 4) if small else (1 << 20, 32)
    case = replace(loom_scan.case(length, width), entries={})
    return of_case(case, 0.0, _scan_of_rows, **{"ours, chunks": {"time": tp.chunks(8)}})


def _scan_of_rows(decay: Any, values: Any) -> Any:
    rows = math.isqrt(decay.shape[0])
    parts = [each.reshape(rows, -1, each.shape[-1]) for each in (decay, values)]
    product, state = lax.associative_scan(loom_scan.compose, tuple(parts), axis=1)
    total = lax.associative_scan(loom_scan.compose, (product[:, -1], state[:, -1]))[1]
    before = jnp.concatenate([jnp.zeros_like(total[:1]), total[:-1]])
    return (product * before[:, None] + state).reshape(decay.shape)


def heat(small: bool) -> Row:
    """Fifty steps of the heat equation."""
    height, steps = (32, 4) if small else (8192, 50)
    return of_case(loom_stencil.heat(height, height, steps), 0.0)


def periodic(small: bool) -> Row:
    """The same on a periodic grid."""
    height, steps = (32, 4) if small else (8192, 50)
    case = loom_stencil.deep(height, height, steps, 1)
    return of_case(case, 0.0, lambda u: lax.fori_loop(0, steps, lambda _, u: _wrapped(u), u))


def _wrapped(u: Any) -> Any:
    return loom_stencil.diffuse(jnp.pad(u, 1, mode="wrap"))


def top(small: bool) -> Row:
    """The largest of many."""
    return of_case(loom_topk.case(1 << 18 if small else 1 << 26, 64), 0.0, best_of_groups)


def fft(small: bool) -> Row:
    """A transform in two dimensions."""
    return of_case(loom_fft.case(32 if small else 8192), 0.0)


def microbatch(small: bool) -> Row:
    """Gradients of a batch in chunks."""
    batch, embed, mlp = (32, 8, 16) if small else (65536, 1024, 4096)
    case = loom_microbatch.case(1, 8, batch, embed, mlp)
    return of_case(case, 4.0 * batch * embed * mlp)


def mlp(small: bool) -> Row:
    """Value and gradients of an MLP; nothing is cut."""
    tokens, embed, hidden = (32, 8, 16) if small else (16384, 1024, 4096)
    return of_case(_filled(aot_cases.mlp_case(tokens, embed, hidden)), 4.0 * tokens * embed * hidden)


def layers(small: bool) -> Row:
    """Stacked layers with gradients: as they are, and computed again for the gradient."""
    count, tokens, embed, hidden = (2, 32, 8, 16) if small else (8, 16384, 1024, 4096)
    case = _filled(aot_cases.fsdp_case(count, tokens, embed, hidden))
    row = of_case(replace(case, options={}), 4.0 * count * tokens * embed * hidden)
    mesh = tp.mesh(jax.devices()[:1], data=1)
    again = tp.plan(tp.trace(case.program, *case.arguments), mesh, case.entries, remat=True)
    program = with_gradients(again.compile(), case.gradients)
    assert row.plans is not None
    return replace(
        row,
        name=f"{count} layers, {tokens} x {embed} x {hidden}, with gradients, float32",
        programs={**row.programs, "ours, computed again": program},
        plans={**row.plans, "ours, computed again": again},
    )


def _filled(case: Case) -> Case:
    """A case whose arguments are numbers, of a size that layers keep."""
    key = jax.random.key(0)
    filled = (
        jax.random.normal(jax.random.fold_in(key, at), kind.shape, kind.dtype)
        * (1.0 if at == 0 else 0.5 * kind.shape[-2] ** -0.5)
        for at, kind in enumerate(case.arguments)
    )
    return replace(case, arguments=tuple(filled))


def transformer(sizes: Sizes, name: str, entries: Mapping[str, Any]) -> Row:
    """Loss and gradients of a transformer beside the same in plain JAX, and with cuDNN's attention in bfloat16."""
    module = tp.nnx.Transformer(sizes.config, rngs=nnx.Rngs(0))
    tokens = jax.random.randint(jax.random.key(0), (sizes.batch, sizes.seq), 0, sizes.vocab)
    arguments = (nnx.state(module), tokens, jnp.roll(tokens, -1, 1))
    mesh = tp.mesh(jax.devices()[:1], data=1, model=1)
    graph = tp.trace(model_loss, module, *arguments[1:])
    plans = {OURS: tp.plan(graph, mesh, entries)}
    plans["ours, vocabulary in chunks"] = tp.plan(graph, mesh, {**entries, "vocab": tp.chunks(8)})
    functions: dict[str, Any] = {label: plan.compile() for label, plan in plans.items()}
    functions[AUTOMATIC] = plain.stacked_loss if sizes.stacked else plain.loss
    if sizes.stacked:
        functions[CUDNN] = partial(plain.stacked_loss, mix=plain.fused_mix)
    matrices = sizes.layers * 12 * sizes.embed**2 + sizes.embed * sizes.vocab
    scores = sizes.layers * 4 * sizes.seq * sizes.embed
    flops = 3.0 * sizes.batch * sizes.seq * (2 * matrices + scores)
    programs = {label: jax.value_and_grad(function) for label, function in functions.items()}
    dtype = "bfloat16" if sizes.stacked else "float32"
    return Row(f"{name}, {dtype}", programs, arguments, flops, dtype, plans, (0,))


TWO = Sizes(layers=2, embed=1024, heads=16, vocab=32768, batch=8, seq=1024)
TWELVE = Sizes(layers=12, embed=1024, heads=16, vocab=32768, batch=16, seq=1024, stacked=True)
TINY = Sizes(layers=2, embed=16, heads=2, vocab=32, batch=2, seq=8)


def two_layers(small: bool) -> Row:
    """A transformer of two layers in float32."""
    sizes = TINY if small else TWO
    return transformer(sizes, f"transformer of 2 layers, {sizes.batch} x {sizes.seq} tokens", {"batch": "data"})


def twelve_layers(small: bool) -> Row:
    """A transformer of twelve stacked layers in bfloat16."""
    sizes = replace(TINY, stacked=True) if small else TWELVE
    name = f"transformer of {sizes.layers} stacked layers, {sizes.batch} x {sizes.seq} tokens"
    return transformer(sizes, name, PLANS["batch, heads, mlp"])


def context(small: bool, seq: int = 32768, dtype: Any = jnp.float32, chunks: int = 8) -> Row:
    """One block of a transformer on a long context, with gradients."""
    embed, heads = (16, 2) if small else (512, 8)
    seq, chunks = (64, 4) if small else (seq, chunks)
    config = tp.nnx.TransformerConfig(layers=1, embed=embed, heads=heads, vocab=8, max_len=8, param_dtype=dtype)
    module = tp.nnx.Block(config, rngs=nnx.Rngs(0))
    x = jax.random.normal(jax.random.key(0), (1, seq, embed), dtype)
    graph = tp.trace(module, tp.TensorType({"batch": 1, "seq": seq, "embed": embed}, dtype))
    mesh = tp.mesh(jax.devices()[:1], data=1)
    plans = {OURS: tp.plan(graph, mesh, {"seq": tp.chunks(chunks), "keys": tp.chunks(chunks)})}
    plans[f"ours, {4 * chunks} chunks"] = tp.plan(
        graph, mesh, {"seq": tp.chunks(4 * chunks), "keys": tp.chunks(4 * chunks)}
    )
    if dtype == jnp.bfloat16:
        plans["ours, whole keys"] = tp.plan(graph, mesh, {})
    functions: dict[str, Any] = {label: plan.compile() for label, plan in plans.items()} | {AUTOMATIC: plain.block}
    if dtype == jnp.bfloat16:
        functions[CUDNN] = partial(plain.block, mix=plain.fused_mix)
    flops = 3.0 * seq * (24 * embed**2 + 2 * seq * embed)
    name = f"block of embed {embed}, {seq} tokens, with gradients, {jnp.dtype(dtype).name}"
    programs = {label: with_gradients(function, 2) for label, function in functions.items()}
    return Row(name, programs, (nnx.state(module), x), flops, jnp.dtype(dtype).name, plans, (0, 1))


BFLOAT16 = jnp.bfloat16
ROWS: dict[str, Callable[[bool], Row]] = {
    "MLP": mlp,
    "layers": layers,
    "attention": attention,
    "attention, bfloat16": partial(attention, dtype=BFLOAT16),
    "causal attention, bfloat16": partial(attention, dtype=BFLOAT16, causal=True),
    "cross-entropy": cross_entropy,
    "cross-entropy, bfloat16": partial(cross_entropy, dtype=BFLOAT16),
    "microbatch": microbatch,
    "scan": scan,
    "heat": heat,
    "periodic heat": periodic,
    "top": top,
    "FFT": fft,
    "two layers": two_layers,
    "twelve layers": twelve_layers,
    "context of 8k": partial(context, seq=8192, chunks=2),
    "context of 32k": context,
    "context of 32k, bfloat16": partial(context, dtype=BFLOAT16),
}
