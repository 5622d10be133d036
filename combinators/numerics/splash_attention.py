"""Splash attention, the kernel for TPUs that JAX keeps: scores never reach memory, whether keys are whole or cut.

JAX gives its output and the log-sum-exp of the scores, and differentiates the output alone. A state that merges needs
both derivatives. The kernels of its backward pass take `di`, the sum of output times cotangent of each row; where the
log-sum-exp has the cotangent `dl` as well, `di - dl` in its place is the derivative, exactly:

    ds = p (dp - di),    d(log-sum-exp)/ds = p,    so    ds = p (dp - (di - dl)).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from combinators.frozen import dataclass
from combinators.numerics.attention_kernel import Axes, Scores

LANES = 128
"""What lengths of queries and keys must divide by: the width of a TPU's vectors."""
BLOCK_SIZES = (512, 384, 256, 128)
"""Rows and keys that are in a core's memory at once; the first that divides the length."""
HEAD_SIZES = (8, 512)
"""The fewest and the most features of a head."""
FAST = 8 * 2**20
"""Bytes of scores in a block that stay in a core's fast memory from product to product: written out, these take no
other memory, and six products with gradients where the kernel, which computes scores again, takes nine."""
FAST_AGAIN = 16 * 2**20
"""The same for states: loops compute their turns again, so that no weights of several turns are kept."""
_BACKWARD = ("_splash_attention_bwd_dkv", "_splash_attention_bwd_dq")


@dataclass(frozen=True)
class SplashAttention(Scores):
    """The output of a block of queries that meets all keys.

    Attributes:
      interpret: whether Pallas interprets the kernel, which any machine can do, slowly.
    """

    interpret: bool = False

    def __call__(self, *blocks: Any) -> Any:
        """The result block."""
        *operands, last = self._operands(blocks)
        out = _output(*operands, last, self.interpret)
        return self._named(out, blocks, (*self.output[:-1], self.value[-1]))

    def why_not(self, *blocks: Any) -> str:
        """Why the kernel cannot take blocks of these types; empty where it can."""
        if self.mask is not None or self.bias is not None:
            return f"it takes no {'mask' if self.mask is not None else 'bias'}"
        inner = {*self.shared, self.keys}
        for label, axes in (("keys", self.key), ("values", self.value)):
            if {*axes[:-1]} != inner:
                return f"its {label} have the axes of the queries' heads and batches, and no others"
        query, key, value = blocks[:3]
        if not query.dtype == key.dtype == value.dtype:
            return f"it takes operands of one dtype, and these are {query.dtype}, {key.dtype} and {value.dtype}"
        sizes = self._sizes(blocks)
        for label, length in (("queries", _product(sizes, self.lines)), ("keys", sizes[self.keys])):
            if length == 0 or length % LANES:
                return f"{length} {label} in a block are no multiple of {LANES}"
        least, most = HEAD_SIZES
        for size in (query.shape[-1], value.shape[-1]):
            if not least <= size <= most or size % least:
                return f"{size} features of a head are no multiple of {least} up to {most}"
        if any(size == 0 for block in blocks for size in block.shape):
            return "a block is empty"
        scores = 4 * _product(sizes, self.rows) * sizes[self.keys]
        if scores <= self.fast:
            return f"{scores / 2**20:.3g} MiB of scores in a block stay in fast memory"
        return missing()

    @property
    def fast(self) -> int:
        """Bytes of scores for which no kernel is needed."""
        return FAST

    def _operands(self, blocks: Sequence[Any]) -> tuple[Any, ...]:
        """Scaled queries, keys and values as heads, rows, features; and the last key that each row sees."""
        query, key, value, *rest = blocks
        sizes = self._sizes(blocks)
        scale = self.scale if self.scale is not None else query.shape[-1] ** -0.5
        last = None
        if self.causal:
            at, of = rest
            last = _last_seen(at, of)
        return (
            self._rows(query * scale, self.query, (*self.shared, *self.groups), self.lines, sizes).astype(query.dtype),
            self._rows(key, self.key, self.shared, (self.keys,), sizes),
            self._rows(value, self.value, self.shared, (self.keys,), sizes),
            last,
        )

    def _sizes(self, blocks: Sequence[Any]) -> dict[str, int]:
        return dict(
            zip((*self.query[:-1], *self.key[:-1]), (*blocks[0].shape[:-1], *blocks[1].shape[:-1]), strict=True)
        )

    def _rows(self, block: Any, axes: Axes, heads: Axes, lines: Axes, sizes: Mapping[str, int]) -> Any:
        moved = jnp.transpose(block, [axes.index(name) for name in (*heads, *lines, axes[-1])])
        return moved.reshape(_product(sizes, heads), _product(sizes, lines), block.shape[-1])

    def _named(self, array: Any, blocks: Sequence[Any], order: Axes) -> Any:
        """Heads, rows and perhaps features, as the axes of `order`."""
        sizes, own = self._sizes(blocks), (*self.shared, *self.groups, *self.lines)
        full = array.reshape(*(sizes[name] for name in own), *array.shape[2:])
        axes = (*own, *order[len(own) :])
        return jnp.transpose(full, [axes.index(name) for name in order])


@dataclass(frozen=True)
class SplashState(SplashAttention):
    """The state of a block of queries and a block of keys, for folds over a mesh, in rings and in chunks."""

    @property
    def fast(self) -> int:
        """Bytes of scores for which no kernel is needed."""
        return FAST_AGAIN

    def __call__(self, *blocks: Any) -> Any:
        """State block with axes `rows`, `rows`, `rows + value`; its maximum is the log-sum-exp."""
        *operands, last = self._operands(blocks)
        state: Any = _state(*operands, last, self.interpret)
        top, norm, out = state
        rows = self.rows
        return (
            self._named(lax.stop_gradient(top), blocks, rows),
            self._named(norm, blocks, rows),
            self._named(out, blocks, (*rows, self.value[-1])),
        )


@dataclass(frozen=True)
class FitsSplash:
    """The condition of a `SplashAttention`."""

    kernel: SplashAttention

    def __call__(self, *blocks: Any) -> bool:
        """Whether it takes blocks of these types."""
        return not self.why_not(*blocks)

    def why_not(self, *blocks: Any) -> str:
        """Why it does not; empty where it does."""
        return self.kernel.why_not(*blocks)


@cache
def missing() -> str:
    """Why this JAX has no kernel that can be used; empty where it has."""
    try:
        kernels = _kernels()
        known = [inspect.signature(getattr(kernels, name)).parameters for name in _BACKWARD]
    except (ImportError, AttributeError):
        return "this JAX does not have it"
    return "" if all("di" in each and "mask_info" in each for each in known) else "this JAX has it in another form"


def _kernels() -> Any:
    # Pallas takes half a second of every import, and is used by those alone who compile for a TPU.
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel

    return splash_attention_kernel


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def _output(q: Any, k: Any, v: Any, last: Any, interpret: bool) -> Any:
    """Softmax-weighted values: heads, rows, features."""
    return _seen(_forward(q, k, v, last, interpret, False), last, 0)


def _output_forward(q: Any, k: Any, v: Any, last: Any, interpret: bool) -> tuple[Any, Any]:
    out, lse = _with_logsumexp(q, k, v, last, interpret)
    return out, (q, k, v, last, lse, out)


def _output_backward(interpret: bool, kept: Any, cotangent: Any) -> Any:
    q, k, v, last, lse, out = kept
    di = jnp.sum(out.astype(jnp.float32) * cotangent.astype(jnp.float32), axis=-1)
    return (*_backward(q, k, v, last, lse, cotangent, di, interpret), None)


_output.defvjp(_output_forward, _output_backward)


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def _state(q: Any, k: Any, v: Any, last: Any, interpret: bool) -> Any:
    """`(m, l, o)` with `m` the log-sum-exp, which has no derivative: merging is right for any reference."""
    return _state_forward(q, k, v, last, interpret)[0]


def _state_forward(q: Any, k: Any, v: Any, last: Any, interpret: bool) -> tuple[Any, Any]:
    out, lse = _with_logsumexp(q, k, v, last, interpret)
    state = _seen(lse, last, -jnp.inf), _seen(jnp.ones_like(lse), last, 0), out.astype(jnp.float32)
    return state, (q, k, v, last, lse)


def _state_backward(interpret: bool, kept: Any, cotangents: Any) -> Any:
    q, k, v, last, lse = kept
    _, norm, out = cotangents
    # With m fixed, l and o are sums of exp(s - m) and of exp(s - m) v: both go into the score, l where di goes.
    return (*_backward(q, k, v, last, lse, out, -norm, interpret), None)


_state.defvjp(_state_forward, _state_backward)


def _with_logsumexp(q: Any, k: Any, v: Any, last: Any, interpret: bool) -> tuple[Any, Any]:
    """Output and log-sum-exp; both 0 in rows that see nothing, so that nothing infinite is computed with later."""
    out, (lse,) = _forward(q, k, v, last, interpret, True)
    return _seen(out, last, 0), _seen(lse, last, 0)


def _forward(q: Any, k: Any, v: Any, last: Any, interpret: bool, save_residuals: bool) -> Any:
    kernels, rows, keys = _kernels(), _block(q.shape[1]), _block(k.shape[1])
    run = kernels.SplashAttentionKernel(
        _mask_info(last, q.shape[1], k.shape[1], by_keys=False),
        None,
        None,
        block_sizes=kernels.BlockSizes(block_q=rows, block_kv=keys),
        is_mqa=False,
        save_residuals=save_residuals,
        mask_value=kernels.DEFAULT_MASK_VALUE,
        attn_logits_soft_cap=None,
        residual_checkpoint_name=None,
        mask_function=None if last is None else lax.ge,
        interpret=interpret,
    )
    return run(q, k, v)


def _backward(
    q: Any, k: Any, v: Any, last: Any, lse: Any, cotangent: Any, di: Any, interpret: bool
) -> tuple[Any, Any, Any]:
    """The derivatives of queries, keys and values."""
    kernels, rows, keys = _kernels(), _block(q.shape[1]), _block(k.shape[1])
    lengths = q.shape[1], k.shape[1]
    heads_first: Any = kernels.QKVLayout.HEAD_DIM_MINOR
    common: dict[str, Any] = {
        "bq": rows,
        "bkv": keys,
        "is_mqa": False,
        "mask_value": kernels.DEFAULT_MASK_VALUE,
        "attn_logits_soft_cap": None,
        "q_layout": heads_first,
        "k_layout": heads_first,
        "v_layout": heads_first,
        "mask_function": None if last is None else lax.ge,
        "interpret": interpret,
    }
    # Rows that see nothing have no derivative, whatever the cotangents of what they gave are.
    given = q, k, v, None, None, lse, _seen(cotangent, last, 0).astype(q.dtype), _seen(di, last, 0)
    of_keys, of_rows = (getattr(kernels, name) for name in _BACKWARD)
    _, dk, dv = of_keys(
        *given,
        bkv_compute=keys,
        use_fused_bwd_kernel=False,
        mask_info=_mask_info(last, *lengths, by_keys=True),
        **common,
    )
    dq = of_rows(*given, mask_info=_mask_info(last, *lengths, by_keys=False), **common)
    return dq, dk, dv


def _mask_info(last: Any, rows: int, keys: int, *, by_keys: bool) -> Any:
    """Which blocks are computed, and which is fetched next: of keys for each of rows, or of rows for each of keys."""
    # Pallas is imported late, see `_kernels`.
    from jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask_info import MaskInfo

    if last is None:
        return MaskInfo(None, None, None, None, None)
    down, across = rows // _block(rows), keys // _block(keys)
    top = jnp.max(last.reshape(down, -1), axis=1)[:, None]
    row, column = jnp.arange(down)[:, None], jnp.arange(across)[None, :]
    runs = top >= column * _block(keys)
    if by_keys:
        fetched = jnp.where(runs, row, jnp.minimum(jnp.sum(~runs, axis=0), down - 1)[None, :])
    else:
        fetched = jnp.where(runs, column, jnp.maximum(top, 0) // _block(keys))
    return MaskInfo(fetched.astype(jnp.int32)[None], None, runs.astype(jnp.int32)[None], None, last)


def _last_seen(at: Any, of: Any) -> Any:
    """The number of the last key that each row sees, -1 where it sees none; coordinates of both ascend.

    Blocks and stripes have coordinates in even steps. Only what has not is searched, which costs a TPU many cycles.
    """
    step = jnp.maximum(of[1] - of[0], 1)
    is_even = jnp.all(of == of[0] + step * jnp.arange(of.shape[0], dtype=of.dtype))

    def divided(at: Any, of: Any) -> Any:
        return jnp.clip((at - of[0]) // step, -1, of.shape[0] - 1)

    def searched(at: Any, of: Any) -> Any:
        return jnp.searchsorted(of, at, side="right", method="sort").astype(at.dtype) - 1

    return lax.cond(is_even, divided, searched, at, of)


def _seen(array: Any, last: Any, otherwise: float) -> Any:
    """An array of heads, rows, and perhaps features, with `otherwise` in rows that see no key."""
    if last is None:
        return array
    seen = (last >= 0).reshape(1, -1, *(1,) * (array.ndim - 2))
    return jnp.where(seen, array, jnp.asarray(otherwise, array.dtype))


def _block(length: int) -> int:
    return next(size for size in BLOCK_SIZES if length % size == 0)


def _product(sizes: Mapping[str, int], names: Axes) -> int:
    return math.prod(sizes[name] for name in names)
