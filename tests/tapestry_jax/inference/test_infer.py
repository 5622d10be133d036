"""Signatures that are found by poisoning operands, what cannot be told, and that the laws agree."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp


def f32(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


def valid_conv(image, kernel):
    numbers = ("NHWC", "HWIO", "NHWC")
    found = jax.lax.conv_general_dilated(
        image[None, :, :, None], kernel[:, :, None, None], (1, 1), "VALID", dimension_numbers=numbers
    )
    return found[0, :, :, 0]


def second_difference(x):
    return x[:-2] - 2 * x[1:-1] + x[2:]


def by_position(x):
    return x * jnp.arange(x.shape[0])


def same_conv(x):
    return jnp.convolve(x, jnp.ones(3), mode="same")


KERNELS = {
    "gelu": (jax.nn.gelu, [f32(4, 3)], "map", "i j -> i j", None),
    "add": (jnp.add, [f32(4, 3), f32(3)], "map", "i j, j -> i j", None),
    "softmax": (jax.nn.softmax, [f32(4, 3)], "map", "i [j] -> i [j]", None),
    "matmul": (jnp.matmul, [f32(4, 5), f32(5, 3)], "reduce", "i k, k j -> i j", "Sum"),
    "convolution": (valid_conv, [f32(6, 5), f32(3, 2)], "map", "(i+[k]) (j+[l]), [k] [l] -> i j", None),
    "second difference": (second_difference, [f32(6)], "map", "(i+[j]) -> i", None),
    "every second": (lambda x: x[:5:2], [f32(6)], "map", "(2*i) -> i", None),
    "cumsum": (lambda x: jnp.cumsum(x, 1), [f32(4, 3)], "scan", "i j -> i j", "Sum"),
    "running maximum": (lambda x: jax.lax.cummax(x, reverse=True), [f32(5)], "scan", "i -> i", "Max"),
    "transpose": (jnp.transpose, [f32(4, 3)], "map", "j i -> i j", None),
    "sum": (lambda x: x.sum(0), [f32(4, 3)], "reduce", "k i -> i", "Sum"),
    "maximum": (lambda x: x.max(0), [f32(4, 3)], "reduce", "k i -> i", "Max"),
    "any": (lambda x: x.any(0), [f32(4, 3, dtype=jnp.bool_)], "reduce", "k i -> i", "Any"),
    "fft": (jnp.fft.fft, [f32(3, 4, dtype=jnp.complex64)], "map", "i [j] -> i [j]", None),
}


def check_arrow(found, function, specs):
    drawn = [np.random.default_rng(seed).standard_normal(spec.shape) * 3 for seed, spec in enumerate(specs)]
    operands = [np.asarray(x > 0 if s.dtype == bool else x).astype(s.dtype) for x, s in zip(drawn, specs, strict=True)]
    got, want = jax.tree.leaves(found.arrow(*operands)), jax.tree.leaves(function(*operands))
    assert [np.shape(leaf) for leaf in got] == [np.shape(leaf) for leaf in want], str(found)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6, err_msg=str(found))


def check_laws(found, specs, law):
    """Hold the law over what is proposed; where no dimension is cut, no law of maps and folds applies."""
    if law is None:
        with pytest.raises(tp.laws.LawError, match="could be checked"):
            tp.laws.assert_lawful(found.arrow, specs, laws=["map.split", "reduce.fold", "scan.prefix"], examples=2)
    else:
        assert law in tp.laws.assert_lawful(found.arrow, specs, laws=law, examples=3).held


# Found as others are: below, or of another function cell by cell or of rows.
ALIKE = ("maximum", "any", "gelu", "sum")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] * (name in ALIKE)) for name in KERNELS]
)
def test_signature_is_found(name):
    function, specs, kind, signature, monoid = KERNELS[name]
    found = tp.infer(function, specs, name=name)
    assert (found.kind, found.signature) == (kind, signature), str(found)
    assert getattr(found.monoid, "name", None) == monoid
    check_arrow(found, function, specs)


def poolings(x):
    return x.sum(), x.max()


I, B = jnp.int32, jnp.bool_
# Kernel, operands, what is proposed, and a law that tests the proposal; None where nothing is cut.
PROPOSED = {
    "vector sum": (jnp.sum, [f32(5)], 'reduce "k -> ", Sum', "reduce.fold"),
    "vector maximum": (jnp.max, [f32(5)], 'reduce "k -> ", Max', "reduce.fold"),
    "vector product": (jnp.prod, [f32(5)], 'reduce "k -> ", Prod', "reduce.fold"),
    "dot": (jnp.dot, [f32(5), f32(5)], 'reduce "k, k -> ", Sum', "reduce.fold"),
    "matrix sum": (jnp.sum, [f32(4, 3)], 'reduce "k p -> ", Sum', "reduce.fold"),
    "integer maximum": (jnp.max, [f32(5, dtype=I)], 'reduce "k -> ", Max', "reduce.fold"),
    "column minima": (lambda x: x.min(0), [f32(4, 3, dtype=I)], 'reduce "k i -> i", Min', "reduce.fold"),
    "vector any": (jnp.any, [f32(5, dtype=B)], 'reduce "k -> ", Any', "reduce.fold"),
    "vector all": (jnp.all, [f32(5, dtype=B)], 'reduce "k -> ", All', "reduce.fold"),
    "logarithms": (lambda x: jnp.log(jnp.abs(x)).max(), [f32(5)], 'reduce "k -> ", Max', "reduce.fold"),
    "size": (lambda x: jnp.float32(x.shape[0]), [f32(5)], 'reduce "k -> ", Sum', "reduce.fold"),
    "scaled sum": (lambda s, x: s * x.sum(), [f32(), f32(4)], 'reduce "(), k -> ", Sum', "reduce.fold"),
    "kept axis": (
        lambda x: x.sum(0, keepdims=True),
        [f32(4, 3)],
        "reduce \"k j -> [i] j\", Sum, sizes={'i': 1}",
        "reduce.fold",
    ),
    "segments": (
        lambda x, i: jax.ops.segment_sum(x, i, 4),
        [f32(5), f32(5, dtype=I)],
        "reduce \"k, k -> [i]\", Sum, sizes={'i': 4}",
        "reduce.fold",
    ),
    "two sums": (lambda x: (x.sum(), (x * x).sum()), [f32(5)], 'reduce "k -> (), ()", Sum', "reduce.fold"),
    "sum and maximum": (poolings, [f32(5)], 'reduce "k -> (), ()", Sum & Max', "reduce.fold"),
    "running any": (
        lambda x: jax.lax.associative_scan(jnp.logical_or, x),
        [f32(5, dtype=B)],
        "scan \"i -> i\", Any, over='i'",
        "scan.prefix",
    ),
    "running sums of one": (
        lambda x: jnp.cumsum(x, 0),
        [f32(5, 1)],
        "scan \"i [j] -> i [j]\", Sum, over='i'",
        "scan.prefix",
    ),
    "scaled": (jnp.multiply, [f32(), f32(4)], 'map "(), i -> i"', "map.split"),
    "masked by one": (lambda m, x: jnp.where(m, x, -x), [f32(dtype=B), f32(4)], 'map "(), i -> i"', "map.split"),
    "outer": (jnp.outer, [f32(4), f32(3)], 'map "i, j -> i j"', "map.split"),
    "stacked": (lambda x, y: jnp.stack([x, y]), [f32(4), f32(4)], "map \"j, j -> [i] j\", sizes={'i': 2}", "map.split"),
    "side by side": (lambda x, y: (x + 1, y * 2), [f32(4), f32(4)], 'map "i, j -> i, j"', "map.split"),
    "and transposed": (lambda x: (x, x.T), [f32(4, 3)], 'map "i j -> i j, j i"', "map.split"),
    "shared": (lambda x, y: (x + y, x), [f32(4), f32(4)], 'map "i, i -> i, i"', "map.split"),
    "and column sums": (lambda x: (x, x.sum(0)), [f32(4, 3)], 'map "[i] j -> [i] j, j"', "map.split"),
    "one scalar": (lambda s: s * 2, [f32()], 'map "() -> "', None),
    "flattened": (lambda x: x.reshape(-1), [f32(4, 3)], "map \"[j] [k] -> [i]\", sizes={'i': 12}", None),
    "constant": (lambda x: jnp.zeros(3), [f32(4)], "map \"[j] -> [i]\", sizes={'i': 3}", None),
    "constant of the size": (lambda x: jnp.zeros(4), [f32(4)], "map \"[j] -> [i]\", sizes={'i': 4}", None),
    "solve": (jnp.linalg.solve, [f32(4, 4), f32(4)], 'map "[i] [j], [k] -> [i]"', None),
    "vector mean": (jnp.mean, [f32(5)], 'map "[i] -> "', None),
    "trace": (jnp.trace, [f32(4, 4)], 'map "[i] [j] -> "', None),
    "argmax": (jnp.argmax, [f32(5)], 'map "[i] -> "', None),
    "rounded sum": (lambda x: jnp.floor(x.sum()), [f32(5)], 'map "[i] -> "', None),
    "first": (lambda x: x[0], [f32(5)], 'map "[i] -> "', None),
    "running count": (jnp.cumsum, [f32(5, dtype=B)], 'map "[i] -> [i]"', None),
    "and sum": (lambda x: (x * 2, x.sum()), [f32(5)], 'map "[i] -> [i], ()"', None),
}


# What others say with another monoid, of another type or of fewer axes.
THOROUGH = {
    *("vector sum", "vector maximum", "vector any", "vector mean", "two sums"),
    *("running any", "and transposed", "shared", "constant", "rounded sum", "running sums of one"),
    *("vector product", "matrix sum", "logarithms", "kept axis", "scaled", "and sum"),
    *("column minima", "integer maximum", "vector all", "scaled sum", "argmax", "outer", "and column sums"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] * (name in THOROUGH)) for name in PROPOSED]
)
def test_proposal_runs_and_obeys_the_laws(name):
    function, specs, proposal, law = PROPOSED[name]
    found = tp.infer(function, specs, name="kernel")
    assert str(found).splitlines()[0] == f"kernel: {proposal}"
    check_arrow(found, function, specs)
    check_laws(found, specs, law)


def test_results_with_different_axes_have_a_carrier():
    specs = [f32(3), f32(4)]
    found = tp.infer(lambda x, y: (x * 2, y.sum()), specs)
    assert (found.signature, found.carrier) == ("i, k -> i, ()", "i, ")
    check_arrow(found, lambda x, y: (x * 2, y.sum()), specs)
    check_laws(found, specs, "reduce.fold")


def weighted_mean(x, w):
    return (x * w).sum() / w.sum()


def attention(q, k, v):
    return jax.nn.softmax(q @ k.T) @ v


@pytest.mark.parametrize(
    ("function", "specs", "signature", "larger"),
    [
        (weighted_mean, [f32(5), f32(5)], "[i], [i] -> ", [f32(7), f32(7)]),
        (
            attention,
            [f32(3, 4), f32(5, 4), f32(5, 2)],
            "i [k], [l] [k], [l] j -> i j",
            [f32(4, 3), f32(6, 3), f32(6, 2)],
        ),
        (lambda i: jax.nn.one_hot(i, 4), [f32(5, dtype=I)], "i -> i [j]", [f32(6, dtype=I)]),
    ],
    ids=["weighted mean", "attention", "one hot"],
)
def test_whole_axes_that_have_one_size_share_a_name(function, specs, signature, larger):
    found = tp.infer(function, specs)
    assert found.signature == signature
    check_arrow(found, function, larger)


def test_size_of_a_result_that_equal_axes_give_together_is_told():
    found = tp.infer(jnp.diag, [f32(4, 4)])
    assert found.untold[-1] == (
        "axis 0 of result 0 has the size of axis 0 of operand 0 only where axis 1 of operand 0 has it too"
    )


def test_many_folds_have_names():
    found = tp.infer(jnp.sum, [f32(*(2,) * 8)])
    assert found.signature == "k p q r s t f0 f1 -> "


@pytest.mark.parametrize("name", ["softmax", "matmul", "second difference", "cumsum"])
def test_laws_agree_with_what_was_found(name):
    function, specs, *_ = KERNELS[name]
    found = tp.infer(function, specs, name=name)
    report = tp.laws.assert_lawful(found.arrow, specs, laws=["map.split", "reduce.fold", "scan.prefix"], examples=3)
    assert report.held


@pytest.mark.parametrize(
    ("function", "specs", "signature", "untold"),
    [
        (by_position, [f32(6)], "[i] -> [i]", "may know its size or its coordinates"),
        (same_conv, [f32(6)], "[i] -> [i]", "answers in no pattern"),
        (jnp.diag, [f32(4, 4)], "[i] [j] -> [i]", "as on a diagonal"),
        (lambda x: x.mean(0), [f32(4, 3)], "[j] i -> i", "whole, as far as Sum, Max"),
        (lambda x, y: x, [f32(4), f32(4)], "i, [j] -> i", "nothing answers to axis 0 of operand 1"),
        (jnp.sin, [f32(1, 3)], "[i] j -> [i] j", "too few to tell"),
        (lambda x: jax.lax.associative_scan(lambda a, b: 0.5 * a * b + b, x), [f32(5)], "[i] -> [i]", "not found"),
        (jnp.mean, [f32(5)], "[i] -> ", "axis 0 of operand 0 is whole, as far as Sum, Max"),
        (lambda x, s: x, [f32(4), f32()], "i, () -> i", "nothing answers to operand 1"),
        (lambda x: jnp.arange(x.shape[0]), [f32(5)], "[i] -> [i]", "only the size of axis 0 of operand 0 is read"),
        (jnp.diag, [f32(4)], "[i] -> [i] [j]", "axis 0 of result 0 and axis 1 of result 0 run together"),
        (lambda x: x.reshape(-1), [f32(4, 3)], "[j] [k] -> [i]", "i=12 is that of these operands only"),
        (lambda x: [x.sum(), x.max()], [f32(5)], "[i] -> (), ()", "do with Sum and Max: return them as a tuple"),
        (lambda x, y: (x * 2, y.sum()), [f32(3), f32(4)], "i, k -> i, ()", "Min merges what was seen of result 0"),
        (lambda x, y: x.sum() + y, [f32(5), f32(5)], "[j], i -> i", "axis 0 of operand 0 is whole"),
        (
            lambda x, g: jax.nn.softmax(x) * g,
            [f32(4, 3), f32(3)],
            "i [j], [j] -> i [j]",
            "axis 1 of operand 0, of its size, may belong to it and is read as a whole, or",
        ),
        (
            lambda x: (x * 2, jnp.arange(x.shape[0])),
            [f32(5)],
            "[i] -> [i], [i]",
            "axis 0 of result 0 is read cell by cell, but result 1 changes with its size",
        ),
    ],
    ids=[
        *["positions", "same", "diagonal", "mean", "unread", "one cell", "unknown scan", "vector mean"],
        *["unread scalar", "size", "to a diagonal", "flattened", "list", "rivals", "sum beside", "gain", "numbered"],
    ],
)
def test_what_cannot_be_told_is_said(function, specs, signature, untold):
    found = tp.infer(function, specs)
    assert found.signature == signature, str(found)
    assert any(untold in sentence for sentence in found.untold), str(found)
    assert "not told: " in str(found)


@pytest.mark.parametrize(
    ("function", "specs"),
    [
        (lambda x: (x, x.sum(0)), [f32(4, 3)]),
        (lambda x: (x * 2, x.sum()), [f32(5)]),
        (lambda x: (jnp.cumsum(x), x), [f32(5)]),
    ],
    ids=["column sums", "sum", "running sum"],
)
def test_two_readings_of_an_axis_are_told_as_such(function, specs):
    told = tp.infer(function, specs).untold
    assert len(told) == 1
    assert "follows axis 0 of operand 0 cell by cell, but result" in told[0]
    assert "one signature cannot say both" in told[0]


@pytest.mark.parametrize("function", [jnp.sum, jnp.max, lambda x: x @ x], ids=["sum", "maximum", "square"])
def test_scalar_results_are_told_nothing_untrue(function):
    assert not any("may not be read" in sentence for sentence in tp.infer(function, [f32(5)]).untold)


def test_nan_is_looked_for_by_others_only():
    with jax.debug_nans(True), jax.debug_infs(True):
        assert tp.infer(lambda x: jnp.log(x).sum(), [f32(4)]).signature == "k -> "


def test_operands_without_cells_are_told_as_such():
    assert tp.infer(jnp.sin, [f32(0, 3)]).untold == (
        "axis 0 of operand 0 has 0 cells, too few to tell",
        "operand 0 has 0 cells, too few to tell",
    )


def test_windows_without_an_operand_have_a_size():
    assert tp.infer(second_difference, [f32(6)]).sizes == (("j", 3),)


def test_kernel_that_does_not_take_its_operands():
    with pytest.raises(tp.KernelError, match=r"(?s)`matmul` cannot run on operands of shapes \(4, 5\), \(4, 5\)"):
        tp.infer(jnp.matmul, [f32(4, 5), f32(4, 5)])


def raises(x):
    raise ValueError("not today")


@pytest.mark.parametrize(
    ("function", "specs", "error", "text"),
    [
        (
            jnp.sin,
            f32(4),
            tp.GraphError,
            r"(?s)types of the kernel's operands.*expected a list.*got ShapeDtypeStruct.*Write",
        ),
        (jnp.sin, jnp.ones(3), tp.GraphError, r"(?s)types of the kernel's operands.*expected a list.*Write"),
        (jnp.sin, [], tp.GraphError, r"(?s)types of the kernel's operands.*one at least.*got list: \[\].*Write"),
        (jnp.sin, "ab", tp.GraphError, r"(?s)types of the kernel's operands.*got str: 'ab'.*Write"),
        (jnp.sin, ["a"], tp.GraphError, r"(?s)operand 0 of tp.infer is not an array.*got str: 'a'"),
        (
            "a",
            [f32(4)],
            tp.GraphError,
            r"(?s)takes a kernel.*expected a function.*got str: 'a'.*Pass the function first",
        ),
        (
            raises,
            [f32(4)],
            tp.GraphError,
            r"(?s)`raises` cannot run.*expected an array.*got ValueError: not today.*Pass",
        ),
        (lambda x: "a", [f32(4)], tp.GraphError, r"(?s)result 0 of `lambda` is not an array.*got str: 'a'"),
        (lambda x: None, [f32(4)], tp.GraphError, r"(?s)`lambda` returns nothing.*expected an array.*got None.*Return"),
        (lambda x: (), [f32(4)], tp.GraphError, r"(?s)`lambda` returns nothing.*got \(\).*Return"),
        (
            functools.partial(jnp.multiply, np.ones(3)),
            [f32(3)],
            tp.KernelError,
            r"(?s)tp.infer\(multiply\).*closes over arrays.*operand",
        ),
    ],
    ids=[
        *["one type", "array", "no types", "text", "text in a list", "no function", "raises", "text as result"],
        *["None", "no results", "holds arrays"],
    ],
)
def test_bad_arguments_are_refused(function, specs, error, text):
    with pytest.raises(error, match=text):
        tp.infer(function, specs)
