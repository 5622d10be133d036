"""The functions of JAX that a file may name: array code, each chosen by name.

A name is here when the function, traced on operands of any size with any arguments that a file can hold, makes a
jaxpr and does nothing else: it opens no file and no connection, runs no callback, takes no function among its
arguments, and neither loops over nor allocates what a number or a size in the file asks for. What is not here is
refused, so that a release of JAX adds nothing by itself.

Left out on purpose: what reads, writes or wraps memory (`save`, `load`, `fromfile`, `frombuffer`, `from_dlpack`,
...); what takes functions (`vectorize`, `apply_along_axis`, `piecewise`, `lax.map`, `scan`, `while_loop`, ...); what
makes arrays out of numbers alone (`arange`, `linspace`, `eye`, ...); what repeats itself as often as a number says
(`split`, `unstack`, `bessel_jn`, ...); collectives and random bits, which have their own operations here; NumPy,
which computes at once; and of `operator` and `math` whatever repeats sequences or makes large integers.
"""

from __future__ import annotations

from functools import cache

import jax.numpy as jnp
import numpy as np

_SCALAR_TYPES = (
    "bfloat16 bool_ complex64 complex128 float16 float32 float64 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz"
    " float8_e5m2 float8_e5m2fnuz int2 int4 int8 int16 int32 int64 uint2 uint4 uint8 uint16 uint32 uint64"
)
_FUNCTIONS = {
    "jax.numpy": (
        # Cell by cell.
        "abs absolute acos acosh add angle arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh astype"
        " atan atan2 atanh bitwise_and bitwise_count bitwise_invert bitwise_left_shift bitwise_not bitwise_or"
        " bitwise_right_shift bitwise_xor cbrt ceil clip conj conjugate copysign cos cosh deg2rad degrees divide"
        " divmod equal exp exp2 expm1 fabs float_power floor floor_divide fmax fmin fmod frexp gcd greater"
        " greater_equal heaviside hypot i0 imag invert isclose iscomplex isfinite isinf isnan isneginf isposinf"
        " isreal lcm ldexp left_shift less less_equal log log10 log1p log2 logaddexp logaddexp2 logical_and"
        " logical_not logical_or logical_xor maximum minimum mod modf multiply nan_to_num negative nextafter"
        " not_equal positive pow power rad2deg radians real reciprocal remainder right_shift rint round sign"
        " signbit sin sinc sinh spacing sqrt square subtract tan tanh true_divide trunc unwrap where "
        # Along axes.
        "all amax amin any argmax argmin average count_nonzero cumprod cumsum cumulative_prod cumulative_sum diff"
        " ediff1d max mean median min nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmedian nanmin"
        " nanpercentile nanprod nanquantile nanstd nansum nanvar percentile prod ptp quantile std sum trapezoid"
        " var argpartition argsort lexsort partition searchsorted sort sort_complex "
        # The same cells in another order or shape.
        "append array_equal asarray atleast_1d atleast_2d atleast_3d broadcast_to column_stack concat concatenate copy"
        " diag diagflat diagonal dstack empty_like expand_dims flip fliplr flipud full_like hstack"
        " matrix_transpose moveaxis ones_like permute_dims ravel repeat reshape rollaxis roll rot90 squeeze stack"
        " swapaxes take take_along_axis tile trace transpose tril triu vstack zeros_like "
        # Products.
        "convolve corrcoef correlate cov cross digitize dot einsum inner interp kron matmul matvec outer polyval"
        " tensordot vdot vecdot vecmat "
    )
    + _SCALAR_TYPES,
    "jax.numpy.fft": "fft fft2 fftn fftshift hfft ifft ifft2 ifftn ifftshift ihfft irfft irfft2 irfftn rfft rfft2"
    " rfftn",
    "jax.numpy.linalg": "cholesky cond cross det diagonal eigh eigvalsh inv lstsq matmul matrix_norm matrix_power"
    " matrix_rank matrix_transpose norm outer pinv qr slogdet solve svd svdvals tensordot trace vecdot vector_norm",
    "jax.nn": "celu dot_product_attention elu gelu glu hard_sigmoid hard_silu hard_swish hard_tanh identity leaky_relu"
    " log_sigmoid log_softmax logmeanexp logsumexp mish one_hot relu relu6 selu sigmoid silu soft_sign softmax softplus"
    " sparse_plus sparse_sigmoid squareplus standardize swish tanh",
    "jax.lax": "abs acos acosh add argmax argmin asin asinh atan atan2 atanh batch_matmul bessel_i0e bessel_i1e betainc"
    " bitcast_convert_type bitwise_and bitwise_not bitwise_or bitwise_xor broadcast broadcast_in_dim cbrt ceil"
    " clamp clz collapse complex concatenate conj conv conv_general_dilated conv_with_general_padding"
    " convert_element_type cos cosh cumlogsumexp cummax cummin cumprod cumsum digamma div dot dot_general"
    " dynamic_index_in_dim dynamic_slice dynamic_slice_in_dim eq erf erf_inv erfc exp exp2 expand_dims expm1 fft"
    " floor full_like ge gt igamma igammac imag index_in_dim integer_pow is_finite le lgamma log log1p logistic lt"
    " max min mul ne neg nextafter pad polygamma population_count pow real reciprocal reduce_and reduce_max"
    " reduce_min reduce_or reduce_precision reduce_prod reduce_sum reduce_xor rem reshape rev round rsqrt select"
    " select_n shift_left shift_right_arithmetic shift_right_logical sign sin sinh slice slice_in_dim sort sqrt"
    " square squeeze stop_gradient sub tan tanh top_k transpose zeta",
    "jax.scipy.linalg": "cholesky det expm inv lu qr solve solve_triangular svd",
    "jax.scipy.special": "beta betainc betaln digamma entr erf erfc erfinv exp1 expi expit factorial gamma"
    " gammainc gammaincc gammaln gammasgn i0 i0e i1 i1e kl_div log_ndtr log_softmax logit logsumexp ndtr ndtri"
    " poch polygamma rel_entr softmax spence xlog1py xlogy zeta",
    "numpy": "bool_ complex64 complex128 float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64",
    "operator": "abs add and_ eq floordiv ge gt inv invert le lt matmul ne neg not_ or_ pos sub truediv xor",
    "math": "acos acosh asin asinh atan atan2 atanh ceil copysign cos cosh degrees erf erfc exp expm1 fabs floor"
    " fmod gamma hypot lgamma log log10 log1p log2 pow radians sin sinh sqrt tan tanh trunc",
}

ARRAY_FUNCTIONS = frozenset(f"{module}:{name}" for module, names in _FUNCTIONS.items() for name in names.split())
"""Public names of functions and scalar types, as `"module:name"`."""


@cache
def scalar_types() -> tuple[type, ...]:
    """The scalar types among them, which stand for dtypes among the arguments of functions."""
    return tuple(
        getattr(package, name) for package in (jnp, np) for name in _SCALAR_TYPES.split() if hasattr(package, name)
    )
