"""The public names of our own kernels: what a stored program writes for them, wherever their code lives.

A file outlives the layout of this package. So a kernel keeps the name under which it was first published, here, and a
file can name nothing of ours that is not here. Who moves a kernel to another module, or calls it otherwise, keeps its
line and tells its new place in `MOVED`. Who adds a kernel adds its name.

What is here is array code: called while types are checked, it traces and does nothing else. Functions that build
programs, read files or import by name are not here, though they are public.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_KERNELS = {
    "combinators.aggregator": "Aggregator LiftEach Fork Each After Then Mapped",
    "combinators.aggregators.arg_extremum": "lift_indexed argmax_many argmin_many present_indexed",
    "combinators.aggregators.auc": "SidesMany present_auc",
    "combinators.aggregators.bloom": "Bits BitsOfOne bloom_contains",
    "combinators.aggregators.calibration": "CalibrationMany present_calibration",
    "combinators.aggregators.classification": "ConfusionMany HitsMany PresentScore accuracy_many",
    "combinators.aggregators.compensated_sum": "lift_compensated compensated_many",
    "combinators.aggregators.count_min": "CountTable CountOne count_min_estimate",
    "combinators.aggregators.covariance": "covariance_many present_covariance present_correlation deviations_of",
    "combinators.aggregators.ddsketch": "Bins BinOfOne Quantiles",
    "combinators.aggregators.decayed": "lift_decayed present_decayed DecayedMany",
    "combinators.aggregators.elementwise": "present_state SumMany lift_sum prod_many lift_prod ExtremeMany"
    " is_true any_many all_many",
    "combinators.aggregators.first": "lift_valid TakeEnd present_valid",
    "combinators.aggregators.grid": "Grid",
    "combinators.aggregators.histogram": "HistogramMany present_histogram",
    "combinators.aggregators.hyperloglog": "Registers RegistersOfOne estimate_distinct",
    "combinators.aggregators.logsumexp": "LogSumExpMany lift_logsumexp",
    "combinators.aggregators.matrix_product": "lift_matrix MultiplyMany",
    "combinators.aggregators.mean": "count_many lift_count MeanMany lift_mean present_mean",
    "combinators.aggregators.min_max": "present_min_max",
    "combinators.aggregators.minhash": "Signature SignatureOfOne minhash_similarity",
    "combinators.aggregators.moments": "MomentsMany Powers LiftOne present_moments",
    "combinators.aggregators.recurrence": "lift_diagonal lift_dense DiagonalMany last_state",
    "combinators.aggregators.regression": "regression_many PresentRegression",
    "combinators.aggregators.reservoir": "SampleMany SampleOne present_reservoir",
    "combinators.aggregators.softmax_mean": "softmax_many present_softmax_mean",
    "combinators.aggregators.top_k": "TopKLift TopKLiftMany present_top_k",
    "combinators.aggregators.totals": "WithFloats",
    "combinators.arithmetic": "Aligned",
    "combinators.attention_kernel": "AttentionKernel DenseAttention RoundedOutput",
    "combinators.cells": "MapCells",
    "combinators.dense": "Dense",
    "combinators.einsum": "Einsum",
    "combinators.fold": "Attaining FoldKernel _OfCells _Polymorphic",
    "combinators.frame": "Frame",
    "combinators.fused_attention": "FusedAttention FitsFused",
    "combinators.grouped": "Split KeyedLift KeyedMany MaskedLift MaskedMany PresentHeld",
    "combinators.index": "Coordinates",
    "combinators.monoid": "Leafwise Monoid",
    "combinators.monoids.arg_extremum": "combine_argmax combine_argmin argmax_identity argmin_identity",
    "combinators.monoids.attention": "combine_attention attention_output attention_state attention_logsumexp"
    " maximum express restore",
    "combinators.monoids.compensated_sum": "combine_compensated compensated_value",
    "combinators.monoids.covariance": "combine_covariance express restore",
    "combinators.monoids.decayed": "Decay",
    "combinators.monoids.dual": "Swapped",
    "combinators.monoids.elementwise": "lowest highest",
    "combinators.monoids.first": "combine_first combine_last",
    "combinators.monoids.function": "EachIdentity EachKey",
    "combinators.monoids.held": "Hold",
    "combinators.monoids.lexicographic": "Preferred",
    "combinators.monoids.logsumexp": "finite_or_zero combine_logsumexp logsumexp_value maximum express restore",
    "combinators.monoids.matrix_product": "multiply unit_matrix PathProduct PathUnit",
    "combinators.monoids.moments": "merge_means combine_moments summarize reference_mean express restore",
    "combinators.monoids.optional": "nothing Adjoined",
    "combinators.monoids.recurrence": "compose compose_dense dense_identity",
    "combinators.monoids.reservoir": "merge_reservoirs reservoir_identity",
    "combinators.monoids.runs": "Nothing Continue",
    "combinators.monoids.segmented": "Unbroken Restart",
    "combinators.monoids.top_k": "merge_top_k top_k_identity",
    "combinators.numerics.dropped_attention": "DroppedKernel DroppedAttention",
    "combinators.numerics.splash_attention": "FitsSplash SplashAttention SplashState",
    "combinators.pieces": "InPieces",
    "combinators.product": "SideBySide IdentityOf",
    "combinators.random": "Draw FoldIn Split Words",
    "combinators.rearrange": "Rearrangement",
    "combinators.reductions": "Cast ForkMany",
    "combinators.scan": "Steps",
    "combinators.scan_ends": "AtStep Begin Total",
    "combinators.segments": "Flags Labels SegmentLift SegmentMany PresentLast",
    "combinators.slicing": "Pick Turn",
    "combinators.stencil": "StencilKernel Field Ends",
    "combinators.until": "IsNear Zero",
    "combinators.widening": "WideKernel Rounded",
    "combinators.window": "WindowKernel",
    "tapestry_jax.nnx.attention.cache": "PutRows PutWindow Within visible",
    "tapestry_jax.nnx.cast": "Cast",
    "tapestry_jax.nnx.dropout": "Keep",
    "tapestry_jax.nnx.experts.capacity": "Places Dispatch Collect",
    "tapestry_jax.nnx.experts.dropless": "RaggedProduct",
    "tapestry_jax.nnx.experts.mixture": "scaled count_lost",
    "tapestry_jax.nnx.experts.routing": "Choose Chosen softmax_of_last squared_normalizer",
    "tapestry_jax.nnx.images.conv": "Correlate",
    "tapestry_jax.nnx.images.conv_transpose": "Spread",
    "tapestry_jax.nnx.images.pooling": "Pool Averages",
    "tapestry_jax.nnx.loss": "logsumexp_of_block logsumexp_of_rows squared_error",
    "tapestry_jax.nnx.models.sampling": "Nucleus kept gumbel",
    "tapestry_jax.nnx.norm": "Normalize",
    "tapestry_jax.nnx.norms.scaled": "Scaled",
    "tapestry_jax.nnx.norms.statistics": "CentralSums MeanAndVariance Squares MeanSquare variance_of mean_of",
    "tapestry_jax.nnx.positions": "Rotate RotaryScaling",
    "tapestry_jax.nnx.projections.linear": "Added",
    "tapestry_jax.nnx.recurrent.carries": "Flip Kept",
    "tapestry_jax.nnx.recurrent.cells": "Apart",
    "tapestry_jax.nnx.recurrent.mamba": "Taps SelectiveSteps",
    "tapestry_jax.nnx.recurrent.rnn": "Join",
    "tapestry_jax.nnx.rows": "RowsOfBlock Rows RowsWithin EntryOfBlock Entry",
}
# What aggregators compute in NumPy, for tests: it works on real arrays at once, so a file may name it in that place
# alone.
_REFERENCES = {
    "combinators.aggregator": "OnHost",
    "combinators.aggregators.arg_extremum": "reference_argmax reference_argmin",
    "combinators.aggregators.auc": "ReferenceAUC",
    "combinators.aggregators.bloom": "BitsReference",
    "combinators.aggregators.calibration": "ReferenceCalibration",
    "combinators.aggregators.classification": "reference_accuracy ReferenceConfusion ReferenceScore",
    "combinators.aggregators.compensated_sum": "reference_compensated",
    "combinators.aggregators.count_min": "CountTableReference",
    "combinators.aggregators.covariance": "reference_covariance reference_correlation",
    "combinators.aggregators.ddsketch": "QuantilesReference",
    "combinators.aggregators.decayed": "DecayedReference",
    "combinators.aggregators.elementwise": "reference_sum reference_prod reference_min reference_max reference_any"
    " reference_all",
    "combinators.aggregators.first": "ReferenceEnd",
    "combinators.aggregators.histogram": "ReferenceHistogram",
    "combinators.aggregators.hyperloglog": "CountByRegisters",
    "combinators.aggregators.logsumexp": "reference_logsumexp",
    "combinators.aggregators.matrix_product": "MultiplyReference",
    "combinators.aggregators.mean": "reference_count reference_mean",
    "combinators.aggregators.min_max": "reference_min_max",
    "combinators.aggregators.minhash": "SignatureReference",
    "combinators.aggregators.moments": "ReferenceMoments",
    "combinators.aggregators.recurrence": "reference_diagonal reference_dense",
    "combinators.aggregators.regression": "ReferenceRegression",
    "combinators.aggregators.reservoir": "SampleReference",
    "combinators.aggregators.softmax_mean": "reference_softmax_mean",
    "combinators.aggregators.top_k": "TopKReference",
    "combinators.grouped": "KeyedReference MaskedReference",
    "combinators.segments": "LastReference",
}

MOVED: Mapping[str, str] = MappingProxyType(
    {
        "combinators.aggregator": "combinators.aggregation.aggregator",
        "combinators.aggregator:After": "combinators.aggregation.functions:After",
        "combinators.aggregator:Each": "combinators.aggregation.functions:Each",
        "combinators.aggregator:Fork": "combinators.aggregation.functions:Fork",
        "combinators.aggregator:LiftEach": "combinators.aggregation.functions:LiftEach",
        "combinators.aggregator:Mapped": "combinators.aggregation.functions:Mapped",
        "combinators.aggregator:OnHost": "combinators.aggregation.functions:OnHost",
        "combinators.aggregator:Then": "combinators.aggregation.functions:Then",
        "combinators.arithmetic": "combinators.recording.arithmetic",
        "combinators.attention_kernel": "combinators.numerics.attention_kernel",
        "combinators.cells": "combinators.operations.cells",
        "combinators.dense": "combinators.operations.dense",
        "combinators.einsum": "combinators.leaves.einsum",
        "combinators.fold": "combinators.leaves.fold",
        "combinators.frame": "combinators.merging.frame",
        "combinators.fused_attention": "combinators.numerics.fused_attention",
        "combinators.grouped": "combinators.aggregation.grouped",
        "combinators.index": "combinators.leaves.index",
        "combinators.monoid": "combinators.merging.monoid",
        "combinators.monoid:Leafwise": "combinators.merging.leafwise:Leafwise",
        "combinators.pieces": "combinators.merging.pieces",
        "combinators.product:IdentityOf": "combinators.merging.monoid:IdentityOf",
        "combinators.product:SideBySide": "combinators.merging.parts:SideBySide",
        "combinators.random": "combinators.leaves.random",
        "combinators.rearrange": "combinators.leaves.rearrange",
        "combinators.rearrange:Rearrangement": "combinators.operations.compositions:Rearrangement",
        "combinators.reductions": "combinators.numerics.reductions",
        "combinators.scan": "combinators.leaves.scan",
        "combinators.scan_ends": "combinators.leaves.scan_ends",
        "combinators.segments": "combinators.aggregation.segments",
        "combinators.slicing": "combinators.recording.slicing",
        "combinators.stencil": "combinators.stencils.neighbours",
        "combinators.until": "combinators.arrows.conditions",
        "combinators.widening": "combinators.operations.widening",
        "combinators.window": "combinators.leaves.window",
        "tapestry_jax.nnx.cast:Cast": "combinators.recording.reorder:Cast",
        "tapestry_jax.nnx.norm": "tapestry_jax.nnx.norms.layer",
        "tapestry_jax.nnx.positions": "tapestry_jax.nnx.attention.positions",
    }
)
"""What no longer lives where it was published: `"module"` or `"module:name"` to where it is now."""
_PUBLISHED = MappingProxyType({now: name for name, now in MOVED.items()})


def _listed(table: Mapping[str, str]) -> frozenset[str]:
    return frozenset(f"{module}:{name}" for module, names in table.items() for name in names.split())


KERNELS = _listed(_KERNELS)
"""Kernels, monoids and what they are made of."""
REFERENCES = _listed(_REFERENCES)
"""What may stand as the `reference` of an aggregator, and nowhere else."""


def place_of(name: str) -> str:
    """Where the object of a public name lives, as `"module:name"`."""
    return _moved(name, MOVED)


def published(place: str) -> str:
    """The public name of what lives in a place; the place itself for what was never published under another."""
    return _moved(place, _PUBLISHED)


def _moved(name: str, moves: Mapping[str, str]) -> str:
    if name in moves:
        return moves[name]
    module, colon, rest = name.partition(":")
    return f"{moves.get(module, module)}{colon}{rest}"
