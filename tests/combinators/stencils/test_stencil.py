"""Stencils against NumPy's padding and rolling."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import combinators as tp
from combinators import CompositionError, KernelError, SignatureError, TensorType
from combinators.graphs.nodes import Apply
from tests.boundaries import PADS
from tests.simulated.sampled import in_numpy

RNG = np.random.default_rng(0)


def lopsided(u: Any) -> Any:
    """Five neighbours of a plane, none of them like another."""
    return 3 * u[-2, 0] - u.at(x=1) + 2 * u[0, -1] + u[1, 1] - 5 * u.here


def padded(u: Any, mode: Any) -> Any:
    """The same of an array that NumPy has padded by two cells at the low ends and one at the high ones."""

    def at(p: Any, x: int, y: int) -> Any:
        return p[2 + x : 2 + x + u.shape[0], 1 + y : 1 + y + u.shape[1]]

    p = np.pad(u, ((2, 1), (1, 1)), **mode)
    return 3 * at(p, -2, 0) - at(p, 1, 0) + 2 * at(p, 0, -1) + at(p, 1, 1) - 5 * at(p, 0, 0)


REACH = {"x": (-2, 1), "y": (-1, 1)}


@pytest.mark.parametrize("mode", PADS)
def test_stencil_boundaries_are_those_of_numpy(mode: str) -> None:
    u = RNG.normal(size=(5, 4)).astype(np.float32)
    found = tp.stencil(lopsided, REACH, boundary=mode)(u)
    np.testing.assert_allclose(found, padded(u, {"mode": PADS[mode]}), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("sides", "modes"),
    [
        ((2.5, 2.5), {"mode": "constant", "constant_values": 2.5}),
        (("zero", -1), {"mode": "constant", "constant_values": (0, -1)}),
        (("reflect", "reflect"), {"mode": "reflect"}),
        (("one-sided", "one-sided"), {"mode": "reflect", "reflect_type": "odd"}),
    ],
)
def test_stencil_ends_are_those_of_numpy(sides: Any, modes: Any) -> None:
    u = RNG.normal(size=7).astype(np.float32)
    # A line through two cells is the odd reflection as far as one cell.
    low = -1 if "one-sided" in sides else -3
    found = tp.stencil(lambda u: u[low] + 2 * u[1] - 4 * u[-1], {"x": (low, 1)}, boundary={"x": sides})(u)
    p = np.pad(u, (-low, 1), **modes)
    expected = p[:7] + 2 * p[1 - low :][:7] - 4 * p[-1 - low :][:7]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_stencil_is_answered_in_corners() -> None:
    u = RNG.normal(size=(4, 3)).astype(np.float32)
    found = tp.stencil(
        lambda u: u[-1, 1], {"x": (-1, 1), "y": (-1, 1)}, boundary={"x": (7.0, "edge"), "y": "one-sided"}
    )
    p = np.concatenate([np.full((1, 3), 7.0), u])
    p = np.concatenate([p, 2 * p[:, -1:] - p[:, -2:-1]], 1)
    np.testing.assert_allclose(found(u), p[:4, 1:], rtol=1e-5)


def test_stencil_lines_make_differences_one_sided() -> None:
    u = RNG.normal(size=6).astype(np.float32)
    found = tp.stencil(lambda u: (u[1] - u[-1]) / 2, {"x": (-1, 1)}, boundary="one-sided")(u)
    np.testing.assert_allclose(found, np.gradient(u), rtol=1e-5, atol=1e-6)


def test_stencil_that_is_valid_is_a_convolution() -> None:
    u, w = RNG.normal(size=(2, 9)).astype(np.float32)
    found = tp.stencil(lambda u: u[-1] + 2 * u[0] + 3 * u[2], {"x": (-1, 2)}, boundary="valid")(u)
    np.testing.assert_allclose(found, np.correlate(u, [1, 2, 0, 3], "valid"), rtol=1e-5)
    product = tp.stencil(lambda u, w: u[-1] * w[1], {"x": (-1, 2)}, boundary="valid")(u, w)
    np.testing.assert_allclose(product, u[:-3] * w[2:-1], rtol=1e-5)


def test_stencil_of_three_dimensions_and_batches() -> None:
    u = RNG.normal(size=(2, 3, 4, 5)).astype(np.float32)

    def seven(u: Any) -> Any:
        return sum(u.at(**{dim: step}) for dim in "xyz" for step in (-1, 1)) - 6 * u.here

    found = tp.stencil(seven, dict.fromkeys("xyz", (-1, 1)))(u)
    expected = sum(np.roll(u, step, axis) for axis in (1, 2, 3) for step in (-1, 1)) - 6 * u
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_stencil_of_several_fields_scalars_and_axes_in_any_order() -> None:
    u, v = RNG.normal(size=(3, 4)).astype(np.float32), RNG.normal(size=(4, 3)).astype(np.float32)
    speed = RNG.normal(size=3).astype(np.float32)

    @tp.program("y x, x y, y,  -> y x, y x")
    def step(u: Any, v: Any, speed: Any, dt: Any) -> Any:
        def flux(u: Any, v: Any, c: Any, dt: Any) -> Any:
            return u.here - dt * c.here * (v.at(x=1) - v.at(x=-1)), v[0] + u[1]

        coupled = tp.stencil(flux, {"x": (-1, 1)})
        wide = tp.einsum("y, y x -> y x")(speed, u * 0 + 1)
        return coupled(u, v, wide, dt)

    first, second = step(u, v, speed, np.float32(0.5))
    expected = u - 0.5 * speed[:, None] * (np.roll(v.T, -1, 1) - np.roll(v.T, 1, 1))
    np.testing.assert_allclose(first, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(second, v.T + np.roll(u, -1, 1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("signature", ["y, b y, y b -> y b", "y, b y, b y -> y b", "b y, y, y b -> b y"])
def test_stencil_of_a_batch_that_several_fields_share(signature: str) -> None:
    sizes, cell = {"b": 3, "y": 4}, lambda u, v, w: u[-1] + 2 * v.here + 3 * w[1]
    dims = [each.split() for each in signature.split(" -> ")[0].split(", ")]
    fields = [RNG.normal(size=[sizes[dim] for dim in each]).astype(np.float32) for each in dims]
    found = tp.program(signature)(tp.stencil(cell, {"y": (-1, 1)}))(*fields)
    ordered = [
        np.einsum(f"{''.join(dim)}->{''.join(sorted(dim))}", each) for dim, each in zip(dims, fields, strict=True)
    ]
    u, v, w = (np.broadcast_to(each, (3, 4)) for each in ordered)
    wanted = np.roll(u, 1, 1) + 2 * v + 3 * np.roll(w, -1, 1)
    np.testing.assert_allclose(found, wanted if signature.endswith("b y") else wanted.T, rtol=1e-5)


@pytest.mark.parametrize("dim", ["lead1", "lead2", "open0_0", "x_0"])
def test_stencil_dimensions_have_any_name(dim: str) -> None:
    """Also those that axes without names are called in its signature."""
    u = RNG.normal(size=(2, 3, 4)).astype(np.float32)
    found = tp.stencil(lambda u: u[-1] + 2 * u[1], {dim: (-1, 1)})
    expected = np.roll(u, 1, 2) + 2 * np.roll(u, -1, 2)
    np.testing.assert_allclose(found(u), expected, rtol=1e-5)
    named = tp.trace(found, TensorType({"x": 2, "y": 3, dim: 4}))
    np.testing.assert_allclose(named(u), expected, rtol=1e-5)


def test_stencil_reads_no_window_of_what_it_reads_here_alone() -> None:
    kinds = TensorType({"x": 8}), TensorType({"x": 8})
    graph = tp.trace(tp.stencil(lambda u, c: c[0] * (u[0] - u[-1]), {"x": (-3, 3)}), *kinds)
    node = graph.nodes[-1]
    assert isinstance(node, Apply) and dict(node.operation.sizes) == {"x_0": 2}
    assert str(node.operation.signature) == "(x+[x_0]-1), x -> x"
    assert tp.Graph.from_json(
        tp.trace(tp.stencil(_difference, {"x": (-1, 1)}, boundary=2.0), kinds[0]).to_json(), allow=(__name__,)
    )


def _difference(u: Any) -> Any:
    return u[1] - u[-1]


@pytest.mark.parametrize("boundary", ["periodic", "zero", "edge", 1.5])
@pytest.mark.parametrize("size", [0, 1, 2])
def test_stencil_of_few_cells(boundary: Any, size: int) -> None:
    u = np.arange(1.0, size + 1, dtype=np.float32)
    mode: Any = (
        {"mode": PADS[boundary]} if isinstance(boundary, str) else {"mode": "constant", "constant_values": boundary}
    )
    p = np.pad(u, 3, **mode) if size else np.zeros(6)
    found = tp.stencil(lambda u: u[-3] + 10 * u[2], {"x": (-3, 2)}, boundary=boundary)(u)
    np.testing.assert_allclose(found, p[:size] + 10 * p[5 : 5 + size])


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.int32])
@pytest.mark.parametrize("boundary", ["one-sided", 2])
def test_stencil_keeps_types(dtype: Any, boundary: Any) -> None:
    found = tp.stencil(lambda u: u[1] - u[-1], {"x": (-1, 1)}, boundary=boundary)(jnp.arange(4).astype(dtype))
    assert found.dtype == dtype
    assert found.tolist() == ([2, 2, 2, 2] if boundary == "one-sided" else [-1, 2, 2, 0])


def test_stencil_derivatives_are_those_of_rolls() -> None:
    u = RNG.normal(size=(4, 5)).astype(np.float32)
    ours = in_numpy(jax.grad(lambda u: (tp.stencil(lambda u: u[1, 0] * u[0, -1], REACH)(u) ** 3).sum()))(u)
    theirs = in_numpy(jax.grad(lambda u: ((jnp.roll(u, -1, 0) * jnp.roll(u, 1, 1)) ** 3).sum()))(u)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


# Bad input


@pytest.mark.parametrize(
    ("reach", "options", "text"),
    [
        ({}, {}, "tp.stencil has no dimension"),
        ({"x": (1, 2)}, {}, "no pair of offsets around 0"),
        ({"x": 1}, {}, "no pair of offsets around 0"),
        ({"x": (-1.0, 1)}, {}, "no pair of offsets around 0"),
        ({"x": (-1, 1)}, {"boundary": "mirror"}, "unknown boundary of tp.stencil along .x."),
        ({"x": (-1, 1)}, {"boundary": ("periodic", "zero")}, "unknown boundary of tp.stencil along .x."),
        ({"x": (-1, 1)}, {"boundary": True}, "unknown boundary of tp.stencil along .x."),
        ({"x": (-1, 1)}, {"boundary": {"y": "zero"}}, "speaks of other dimensions"),
    ],
)
def test_stencil_refuses_what_cannot_be(reach: Any, options: Any, text: str) -> None:
    with pytest.raises(SignatureError, match=text):
        tp.stencil(lambda u: u[0], reach, **options)


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (lambda u: u[2], r"reads a cell beyond its reach\n  offsets \(2,\), reach {'x': \(-1, 1\)}"),
        (lambda u: u[0, 0], "reads a cell beyond its reach"),
        (lambda u: u[0] - u[0].sum(), "is not elementwise"),
        (lambda u: u[0].sum(), "gives something else than cells"),
        (lambda u: jnp.roll(u[0], 1), "is not elementwise"),
        (lambda u: 1.0, "gives something else than cells"),
        (lambda u: u, r"gives something else than cells\n  got Neighbours\(x\)\n  Return a new cell .*u\.here is one"),
        (lambda u: [u[0]], "gives something else than cells"),
        (lambda u: (), "gives something else than cells"),
        (lambda u: u.sum(), "on cells and their neighbours\n  AttributeError: 'Neighbours' object has no attribute"),
        (lambda u: u + 1, r"with a field and all its neighbours at once\n  TypeError: .*\n  Read a cell: u\.here is"),
        (lambda u: jnp.sin(u), r"with a field and all its neighbours at once\n  TypeError: .*\n  Read a cell: u\.here"),
        (lambda u: u[1] if u.here > 0 else u[-1], r"the number in one cell, .*\n.*\n  .*jnp\.where\(u\.here > 0"),
        (lambda u: float(u.here) * u[1], r"the number in one cell, by `if`.*\n.*once, for all cells\n"),
        (lambda u: jnp.where(u[0] > 0, u, 0), "with a field and all its neighbours at once"),
        (lambda u, v: u[0], "on cells and their neighbours\n  TypeError: .* missing 1 required"),
    ],
)
def test_stencil_refuses_cells_that_are_none(cell: Any, text: str) -> None:
    with pytest.raises(KernelError, match=text):
        tp.stencil(cell, {"x": (-1, 1)})(jnp.ones(4))


def test_stencil_refuses_operands_that_are_no_fields() -> None:
    step = tp.stencil(lambda u: u[1], {"x": (-1, 1)}, boundary="one-sided")
    with pytest.raises(CompositionError, match="takes a field along x"):
        step(jnp.float32(1))
    with pytest.raises(CompositionError, match="takes fields along x"):
        tp.trace(step, TensorType({"y": 4}))
    with pytest.raises(SignatureError, match=r"reads 3 cells along `x`, which has 1"):
        tp.stencil(lambda u: u[1] - u[-1], {"x": (-1, 1)}, boundary="one-sided")(jnp.ones(1))
    with pytest.raises(KernelError, match="has no dimension `z`"):
        tp.stencil(lambda u: u.at(z=1), {"x": (-1, 1)})(jnp.ones(4))


@pytest.mark.parametrize("boundary", ["periodic", "zero", "one-sided", 2.0, "valid"])
@pytest.mark.parametrize("size", [1, 5, 7])
def test_stencil_refuses_fields_of_different_grids(boundary: Any, size: int) -> None:
    """A window has a boundary, so that a coefficient of another size decided how many cells came out."""
    with pytest.raises(SignatureError) as caught:
        tp.stencil(lambda u, c, d: u[1] * c.here * d, {"x": (-1, 1)}, boundary=boundary)(
            jnp.ones(6), jnp.ones(size), jnp.float32(2)
        )
    assert str(caught.value) == (
        "`lambda` takes fields of one grid; these differ along `x`\n"
        f"  operand 0 has 6 cells, operand 1 has {size} cells\n"
        "  Give all fields as many cells along `x`."
    )


@pytest.mark.parametrize(
    ("number", "dtype"),
    [(1.5, jnp.int32), (300, jnp.int8), (-1, jnp.uint8), (1e9, jnp.float16), (10**400, jnp.float32), (2, jnp.bool_)],
)
def test_stencil_refuses_numbers_that_are_no_cells(number: Any, dtype: Any) -> None:
    cells = jnp.ones((3, 4), dtype)
    reach = {"y": (-1, 1), "x": (-1, 1)}
    text = re.escape(f"`lambda` takes {number!r} for cells of {jnp.dtype(dtype).name} outside of `x`")
    with pytest.raises(SignatureError, match=text):
        tp.stencil(lambda u: u[0, 1], reach, boundary=number)(cells)
    # Along `y` no neighbour is read, so nothing answers there.
    aside = tp.stencil(lambda u: u[0, 1], reach, boundary={"y": number, "x": "edge"})
    assert aside(cells).dtype == dtype and aside(cells).shape == (3, 4)


@pytest.mark.parametrize(
    ("number", "dtype"),
    [(np.float32(1.5), jnp.float16), (np.int64(7), jnp.int8), (float("inf"), jnp.bfloat16), (2**40, jnp.float32)],
)
def test_stencil_takes_numbers_that_are_cells(number: Any, dtype: Any) -> None:
    found = tp.stencil(lambda u: u[1], {"x": (0, 1)}, boundary=number)(jnp.ones(2, dtype))
    assert found.dtype == dtype and found.tolist() == [1, number]


def test_stencil_answers_flags() -> None:
    found = tp.stencil(lambda u: u[1] & u[-1], {"x": (-1, 1)}, boundary=("zero", 1))(jnp.array([True, True, False]))
    assert found.tolist() == [False, False, True]
