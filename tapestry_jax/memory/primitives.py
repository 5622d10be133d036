"""What compilers do with the primitives of JAX; those that are not listed read and make buffers."""

from __future__ import annotations

from tapestry_jax.memory.program import COSTLY, FUSED, HELD, OPAQUE, REDUCED, UPDATE, VIEW

_NAMES = {
    HELD: "optimization_barrier",
    VIEW: """
        reshape squeeze expand_dims transpose copy copy_p name pcast pvary reduced_vary_cast stop_gradient reshard
        bitcast_convert_type sharding_constraint layout_constraint
    """,
    FUSED: """
        abs add add_any and axis_index broadcast_in_dim ceil clamp concatenate conj convert_element_type dynamic_slice
        empty empty2 eq floor full gather ge gt imag integer_pow iota is_finite le lt max min mul ne neg nextafter not
        or pad population_count random_unwrap random_wrap real rev round select_n shift_left shift_right_arithmetic
        shift_right_logical sign slice split square sub complex xor
    """,
    COSTLY: """
        acos acosh asin asinh atan atan2 atanh cbrt cos cosh digamma div erf erf_inv erfc exp exp2 expm1 lgamma log
        log1p logistic pow random_bits rem rsqrt sin sinh sqrt tan tanh threefry2x32
    """,
    REDUCED: """
        argmax argmin reduce reduce_and reduce_max reduce_min reduce_or reduce_precision reduce_prod reduce_sum
        reduce_window reduce_window_max reduce_window_min reduce_window_sum reduce_xor
    """,
    UPDATE: "dynamic_update_slice scatter scatter-add scatter_add scatter_max scatter_min scatter_mul",
}
_COLLECTIVES = ("psum", "pmax", "pmin", "all_gather", "reduce_scatter", "all_to_all", "ppermute")
"""How the names of collectives begin."""
_KINDS = {name: kind for kind, names in _NAMES.items() for name in names.split()}


def kind_of(primitive: str) -> int:
    """The kind of a primitive that is no loop, branch or call."""
    return _KINDS.get(primitive, OPAQUE)


def is_collective(primitive: str) -> bool:
    """Whether devices exchange anything."""
    return primitive.startswith(_COLLECTIVES)
