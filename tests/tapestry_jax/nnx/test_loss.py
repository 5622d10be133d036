"""The loss equals optax's, and its vocabulary and the embedding's can be cut anywhere."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import tapestry_jax as tp
from combinators.numerics.locating import locate
from tapestry_jax.nnx.loss import logsumexp_of_block
from tapestry_jax.nnx.rows import Entry, EntryOfBlock, Rows, RowsOfBlock
from tests.simulated.sampled import computed, sampled
from tests.tapestry_jax.draw import normal

LOGITS = normal(2, 6, 11, scale=5)
TARGETS = jnp.asarray(np.random.default_rng(1).integers(0, 11, (2, 6), np.int32))
# Blocks of a plan are ascending, but need not be contiguous: striped orders exist.
CUTS = [[range(11)], [range(4), range(4, 11)], [range(0, 11, 2), range(1, 11, 2)], [range(0), range(10), range(10, 11)]]


def reference(logits, targets):
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()


def test_cross_entropy_equals_optax_with_gradients():
    value, grads = jax.jit(jax.value_and_grad(tp.nnx.cross_entropy))(LOGITS, TARGETS)
    expected, wanted = computed(jax.value_and_grad(reference), LOGITS, TARGETS)
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    np.testing.assert_allclose(grads, wanted, rtol=1e-5, atol=1e-7)


def written_out(logits, targets, share, ignored, weight):
    spread = optax.smooth_labels(jax.nn.one_hot(targets, 11), share)
    losses = optax.softmax_cross_entropy(logits, spread) + weight * jax.nn.logsumexp(logits, -1) ** 2
    counts = jnp.ones(targets.shape, bool) if ignored is None else targets != ignored
    return jnp.sum(jnp.where(counts, losses, 0)) / counts.sum()


# One of them by itself is a part of all.
@pytest.mark.parametrize(
    ("share", "ignored", "weight"), [pytest.param(0.1, None, 0.0, marks=pytest.mark.thorough), (0.2, -100, 0.01)]
)
def test_options_of_cross_entropy_are_those_of_optax_on_every_mesh(share, ignored, weight):
    targets = TARGETS if ignored is None else TARGETS.at[0, 2:].set(ignored)
    loss = tp.nnx.cross_entropy_with(label_smoothing=share, ignore_index=ignored, z_loss=weight)
    types = tp.TensorType({"batch": 2, "seq": 6, "vocab": 11}), tp.TensorType({"batch": 2, "seq": 6}, jnp.int32)
    entries = {"batch": "data", "vocab": "model"}
    planned = tp.plan(tp.trace(loss, *types), tp.mesh(data=2, model=2), entries).compile()
    expected, wanted = computed(jax.value_and_grad(lambda x: written_out(x, targets, share, ignored, weight)), LOGITS)
    for run, call in ((computed, loss), (sampled, planned)):
        value, grads = run(jax.value_and_grad(call), LOGITS, targets)
        np.testing.assert_allclose(value, expected, rtol=1e-5)
        np.testing.assert_allclose(grads, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.int8, jnp.int32])
@pytest.mark.parametrize("target", [-1, -11, -12, -100, 11, 100])
def test_a_target_outside_of_the_vocabulary_gives_no_number_on_any_mesh(target, dtype):
    targets = TARGETS.at[1, 3].set(target).astype(dtype)
    types = tp.TensorType({"batch": 2, "seq": 6, "vocab": 11}), tp.TensorType({"batch": 2, "seq": 6}, dtype)
    graph = tp.trace(tp.nnx.cross_entropy, *types)
    assert jnp.isnan(graph(LOGITS, targets))
    assert jnp.isnan(tp.nnx.cross_entropy_with(label_smoothing=0.1)(LOGITS, targets))
    if target in (-1, 11) and dtype == jnp.int32:
        for entries in ({"vocab": "data"}, {"batch": "data", "vocab": tp.chunks(3)}):
            planned = tp.plan(graph, tp.mesh(data=2), entries).compile()
            assert jnp.isnan(planned(LOGITS, targets))
            np.testing.assert_allclose(planned(LOGITS, TARGETS), reference(LOGITS, TARGETS), rtol=1e-5)


def test_a_loss_of_nothing_is_no_number():
    assert jnp.isnan(tp.nnx.cross_entropy_with(ignore_index=4)(LOGITS, jnp.full((2, 6), 4)))


@pytest.mark.parametrize("options", [{"label_smoothing": 1.5}, {"z_loss": -1.0}, {"ignore_index": 0.5}])
def test_options_that_are_none_are_told(options):
    with pytest.raises(tp.GraphError, match="of cross_entropy_with"):
        tp.nnx.cross_entropy_with(**options)


def test_squared_errors_are_those_of_optax():
    value, grads = computed(jax.value_and_grad(tp.nnx.mean_squared_error), LOGITS, LOGITS**2)
    expected, wanted = computed(jax.value_and_grad(lambda x, y: optax.squared_error(x, y).mean()), LOGITS, LOGITS**2)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    np.testing.assert_allclose(grads, wanted, rtol=1e-5, atol=1e-6)
    with pytest.raises(tp.TapestryError):
        tp.nnx.mean_squared_error(LOGITS, LOGITS[:, :1])


def test_pairs_are_told_from_the_whole_batch_on_every_mesh():
    left, right = LOGITS.reshape(12, 11), jnp.sin(LOGITS.reshape(12, 11))

    def reference(left, right, scale):
        logits, own = left @ right.T * scale, jnp.arange(12)
        both = (optax.softmax_cross_entropy_with_integer_labels(each, own).mean() for each in (logits, logits.T))
        return sum(both) / 2

    pairs = tp.TensorType({"image": 12, "embed": 11})
    graph = tp.trace(tp.nnx.contrastive, pairs, pairs, tp.TensorType({}))
    planned = tp.plan(graph, tp.mesh(data=2, model=2), {"image": "data", "image_other": "model"}).compile()
    operands = left, right, jnp.float32(0.3)
    calls = ((computed, reference), (computed, tp.nnx.contrastive), (sampled, planned))
    expected, *results = (run(jax.value_and_grad(call, (0, 1, 2)), *operands) for run, call in calls)
    for result in results:
        for a, b in zip(jax.tree.leaves(result), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(), (3,), (2, 1, 3)])
def test_cross_entropy_takes_any_leading_dimensions(shape):
    logits, targets = jnp.broadcast_to(LOGITS[0, 0], (*shape, 11)), jnp.full(shape, 4)
    value = computed(tp.nnx.cross_entropy, logits, targets)
    np.testing.assert_allclose(value, computed(reference, logits, targets), rtol=1e-6)


def test_cross_entropy_computes_in_float32():
    value = jax.jit(tp.nnx.cross_entropy)(LOGITS.astype(jnp.bfloat16), TARGETS)
    assert value.dtype == jnp.float32
    np.testing.assert_allclose(value, reference(LOGITS.astype(jnp.bfloat16).astype(jnp.float32), TARGETS), rtol=1e-2)


def test_cross_entropy_costs_what_optax_costs():
    graph = tp.trace(tp.nnx.cross_entropy, LOGITS, TARGETS)
    for ours, theirs in ((graph, reference), (jax.grad(graph), jax.grad(reference))):
        got, expected = (jax.jit(f).lower(LOGITS, TARGETS).compile().cost_analysis() for f in (ours, theirs))
        for what in ("flops", "bytes accessed"):
            assert got[what] <= 1.02 * expected[what]


def test_every_dimension_of_the_loss_can_be_cut():
    types = tp.TensorType({"batch": 2, "seq": 6, "vocab": 11}), tp.TensorType({"batch": 2, "seq": 6}, jnp.int32)
    nodes = [node for node in tp.trace(tp.nnx.cross_entropy, *types).nodes if hasattr(node, "bound")]
    dims = {node.path: (set(node.bound.values()), node.operation.kind) for node in nodes}
    assert dims["logsumexp"] == ({"batch", "seq", "vocab"}, "reduce")
    assert dims["target"] == ({"batch", "seq", "vocab"}, "reduce")
    assert dims["mean"] == ({"batch", "seq"}, "reduce")


@pytest.mark.parametrize("cut", CUTS)
def test_embedding_rows_of_blocks_add_up_to_the_lookup(cut):
    table = np.random.default_rng(2).standard_normal((11, 3)).astype(np.float32)
    numbers = np.array([[0, 10, 5], [-1, -11, 3]])
    kernel = RowsOfBlock(11)
    blocks = [np.array(list(part), np.int32) for part in cut]
    total_of = jax.jit(lambda numbers: sum(kernel(numbers, table[at], jnp.asarray(at)) for at in blocks))
    np.testing.assert_allclose(total_of(numbers), table[numbers], rtol=1e-6)
    outside = total_of(np.array([11, -12]))
    np.testing.assert_array_equal(outside, jnp.full((2, 3), jnp.nan))


@pytest.mark.parametrize("cut", CUTS)
def test_target_entries_of_blocks_add_up_to_the_entry(cut):
    blocks = [np.array(list(part), np.int32) for part in cut]
    total = jax.jit(lambda x, y: sum(EntryOfBlock(11)(x[..., at], y, jnp.asarray(at)) for at in blocks))(
        LOGITS, TARGETS
    )
    np.testing.assert_array_equal(
        total, np.take_along_axis(np.asarray(LOGITS), np.asarray(TARGETS)[..., None], -1)[..., 0]
    )


@pytest.mark.parametrize("at", [[3], [0, 1, 2, 3], [1, 4, 5, 9, 20], list(range(0, 34, 2))])
def test_locate_agrees_with_numpy(at):
    wanted = np.arange(-2, 40)
    place, found = jax.jit(locate)(wanted, np.array(at, np.int32))
    np.testing.assert_array_equal(found, np.isin(wanted, at))
    np.testing.assert_array_equal(np.array(at)[np.asarray(place)[np.asarray(found)]], wanted[np.isin(wanted, at)])


@pytest.mark.parametrize(("dtype", "size"), [(np.uint8, 256), (np.int8, 200)])
def test_numbers_too_narrow_for_the_size_name_rows_and_entries_all_the_same(dtype, size):
    numbers = np.arange(np.iinfo(dtype).min, np.iinfo(dtype).max + 1).astype(dtype)
    table = np.arange(size, dtype=np.float32)[:, None]
    expected, scores = table[numbers.astype(int)], np.broadcast_to(table[:, 0], (256, size))
    np.testing.assert_array_equal(Rows()(jnp.asarray(numbers), table), expected)
    # A target below 0 is none; a row below 0 counts from the end.
    entered = np.where(numbers.astype(int) < 0, np.nan, expected[:, 0])
    np.testing.assert_array_equal(Entry()(scores, jnp.asarray(numbers)), entered)
    for find in ("__call__", "consecutive"):
        rows, entries = getattr(RowsOfBlock(size), find), getattr(EntryOfBlock(size), find)
        halves = [jnp.arange(0, size // 2), jnp.arange(size // 2, size)]
        np.testing.assert_array_equal(sum(rows(jnp.asarray(numbers), table[at], at) for at in halves), expected)
        found = sum(entries(scores[:, at], jnp.asarray(numbers), at) for at in halves)
        np.testing.assert_array_equal(found, entered)


@pytest.mark.parametrize("kernel", [RowsOfBlock(11), EntryOfBlock(11)], ids=["rows", "entries"])
def test_without_a_search_consecutive_blocks_give_the_same(kernel):
    wanted = jnp.arange(-13, 14)
    for part in (range(11), range(4), range(4, 11), range(10, 11), range(0)):
        at = jnp.asarray(list(part), jnp.int32)
        table = (
            LOGITS[0, :, at] if isinstance(kernel, RowsOfBlock) else jnp.broadcast_to(LOGITS[0, 0, at], (27, len(part)))
        )
        operands = (wanted, table) if isinstance(kernel, RowsOfBlock) else (table, wanted)
        np.testing.assert_array_equal(kernel.consecutive(*operands, at), kernel(*operands, at))


@pytest.mark.parametrize(
    ("place", "searches"),
    [
        ("data", False),
        pytest.param(("data", tp.chunks(2)), False, marks=pytest.mark.thorough),
        (tp.striped("data"), True),
    ],
    ids=str,
)
def test_a_vocabulary_that_is_cut_in_blocks_is_not_searched(place, searches):
    # Neither 3 devices nor their chunks divide it.
    mesh = tp.mesh(jax.devices()[:3], data=3)
    types = tp.TensorType({"batch": 2, "seq": 6, "vocab": 11}), tp.TensorType({"batch": 2, "seq": 6}, jnp.int32)
    plan = tp.plan(tp.trace(tp.nnx.cross_entropy, *types), mesh, {"vocab": place})
    run = plan.compile()
    value, grads = sampled(jax.value_and_grad(run), LOGITS, TARGETS)
    expected, wanted = computed(jax.value_and_grad(reference), LOGITS, TARGETS)
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    np.testing.assert_allclose(grads, wanted, rtol=1e-5, atol=1e-7)
    gathers = jax.jit(run).lower(LOGITS, TARGETS).as_text().count("stablehlo.gather")
    assert (gathers > 4) is searches, gathers


@pytest.mark.parametrize(
    "row", [[1.0, 2, 3], [jnp.inf, 1, 2], [jnp.inf, -jnp.inf, jnp.inf], [-jnp.inf] * 3, [3e38, 0, 1]]
)
def test_sums_beside_infinities_are_numbers_with_gradients(row):
    top, total = logsumexp_of_block(jnp.array(row))
    # Where the maximum is infinite the sum decides nothing, if it is a number.
    np.testing.assert_allclose(top + jnp.log(total), jax.nn.logsumexp(jnp.array(row)), rtol=1e-6)
    grads = jax.jit(jax.grad(lambda x: logsumexp_of_block(x)[1]))(jnp.array(row))
    wanted = jnp.exp(jnp.array(row) - top) if jnp.isfinite(top) else jnp.array(row) == jnp.inf
    np.testing.assert_allclose(grads, wanted, rtol=1e-6)


def test_cross_entropy_refuses_targets_of_another_shape_or_dtype():
    with pytest.raises(tp.SignatureError, match="integer targets"):
        tp.nnx.cross_entropy(LOGITS, TARGETS.astype(jnp.float32))
    with pytest.raises(tp.SignatureError, match="is 5 here, and 6"):
        tp.nnx.cross_entropy(LOGITS, TARGETS[:, :5])
