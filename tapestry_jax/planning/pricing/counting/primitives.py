"""Primitives of JAX by what compilers make of them: products, what runs by itself, what is moved, and the rest."""

from __future__ import annotations

from combinators.kernels.jaxprs import WRAPPERS

CALLS = frozenset((*WRAPPERS, "remat", "remat2", "checkpoint", "custom_jvp_call", "custom_vjp_call", "custom_lin"))
PRODUCTS = frozenset(("dot_general", "conv_general_dilated", "ragged_dot_general", "ragged_dot"))
TRANSCENDENTAL = frozenset(
    (
        "exp", "exp2", "expm1", "log", "log1p", "logistic", "tanh", "sin", "cos", "tan", "sqrt", "rsqrt", "cbrt", "pow",
        "atan2", "erf", "erf_inv", "erfc", "lgamma", "digamma", "sinh", "cosh", "asin", "acos", "atan", "asinh",
        "acosh",
        "atanh",
    )
)  # fmt: skip
SLOW = {"sin": 156.0, "cos": 156.0, "tan": 170.0, "lgamma": 231.0, "digamma": 428.0}
"""Operations that a TPU's vector units take for one beyond those of other transcendentals."""
INSIDE = frozenset(("scan", "while", "cond"))
"""What is counted by the programs inside."""
APART = frozenset(
    (
        "sort", "top_k", "approx_top_k", "gather", "scatter", "scatter-add", "scatter_add", "scatter-mul",
        "scatter_mul",
        "scatter_min", "scatter_max", "scatter-min", "scatter-max", "fft", "cumsum", "cumprod", "cummax", "cummin",
        "cumlogsumexp", "reduce_window", "reduce_window_sum", "reduce_window_max", "reduce_window_min", "cholesky",
        "triangular_solve", "eigh", "qr", "lu", "svd", "pallas_call", "select_and_scatter_add", "while", "scan", "cond",
    )
)  # fmt: skip
SAME = frozenset(
    (
        "reshape", "transpose", "squeeze", "expand_dims", "copy", "copy_p", "stop_gradient", "optimization_barrier",
        "pvary",
        "pcast", "bitcast_convert_type", "reduce_precision",
    )
)  # fmt: skip
"""What gives its operands as they are; compilers choose layouts in memory so that these move nothing."""
MOVED = frozenset(
    (
        "broadcast_in_dim", "slice", "dynamic_slice", "dynamic_update_slice", "concatenate", "pad", "rev", "iota",
        "split",
        "convert_element_type", "real", "imag", "complex", "random_wrap", "random_unwrap",
    )
)  # fmt: skip
"""What computes nothing."""


def is_root(name: str) -> bool:
    """Whether what a primitive makes goes to memory before anybody reads it."""
    return name in PRODUCTS or name in APART or name == "transpose" or is_reduction(name)


def is_reduction(name: str) -> bool:
    """Whether it reduces, to values or to places."""
    return name in ("argmax", "argmin", "reduce") or (name.startswith("reduce_") and name != "reduce_precision")
