"""Layouts, and the changes that lead from one to another, without arrays."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import pytest

from tapestry_jax.planning.geometry.changes import Cast, Exchange, Gather, Slice, changed_shape
from tapestry_jax.planning.geometry.layout import Cut, Layout, dense_bytes, even_cut
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.geometry.way import layout_changes

SHAPE = MeshShape((("data", 2), ("model", 4)))


def cut(size, *axes):
    return even_cut(size, axes, SHAPE)


def test_even_cut_rounds_up_and_leaves_out_axes_of_one_device():
    assert cut(13, "model") == Cut(("model",), 4)
    assert cut(3, "model", "data") == Cut(("model", "data"), 1)
    assert even_cut(9, ("one",), MeshShape((("one", 1),))) is None
    assert cut(0, "data") is None


def test_layout_shapes():
    layout = Layout((cut(7, "data"), None, cut(9, "model")))
    assert layout.axes == {"data", "model"}
    assert layout.local_shape((7, 5, 9)) == (4, 5, 3)
    assert layout.padded_shape((7, 5, 9), SHAPE) == (8, 5, 12)
    assert layout.describe(("a", "b", None)) == "a:data None:model"


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("bool", 15), ("float8_e4m3fn", 15), ("int4", 8), ("float4_e2m1fn", 8), ("uint2", 4), ("complex64", 120)],
)
def test_cells_of_less_than_a_byte_lie_side_by_side_on_devices(dtype: str, size: int):
    assert dense_bytes(15, jnp.dtype(dtype)) == size


# Changes of layout


def changes(shape, source, target, varying=None):
    source, target = (
        Layout(tuple(None if axes is None else cut(n, *axes) for n, axes in zip(shape, layout, strict=True)))
        for layout in (source, target)
    )
    return layout_changes(shape, source, target, target.axes if varying is None else frozenset(varying), SHAPE)


def test_a_slice_of_equal_copies_is_free():
    assert changes((8, 6), (None, None), (("data",), None)) == (Slice(0, Cut(("data",), 4), 8, alike=True),)


def test_gradients_of_slices_are_gathered_where_that_sends_no_more():
    # On the wire an all-reduce of 3 cells sends 6, an all-gather of 4 blocks of 1 sends 4. One cell is not cut.
    assert changes((3,), (None,), (("model",),)) == (Slice(0, Cut(("model",), 1), 3, alike=True),)
    assert changes((1,), (None,), (("model",),)) == ()


def test_a_gather_over_what_the_consumer_does_not_use():
    assert changes((7, 6), (("data",), None), (None, None)) == (Gather(0, ("data",), 7, False),)


def test_a_gather_for_a_consumer_that_varies_over_the_same_axis():
    # Its transpose is a reduce-scatter, and no cast is needed.
    assert changes((7, 6), (("data",), None), (None, None), {"data"}) == (Gather(0, ("data",), 7, True),)


def test_a_cut_that_moves_is_one_all_to_all():
    assert changes((8, 12), (("model",), None), (None, ("model",))) == (Exchange(0, 1, 8, 12, Cut(("model",), 3)),)


def test_slices_come_before_gathers():
    steps = changes((8, 12), (("model",), None), (None, ("data",)))
    assert [type(step) for step in steps] == [Slice, Gather]


def test_inner_axes_are_gathered_and_outer_blocks_kept():
    assert changes((16,), (("data", "model"),), (("data",),)) == (Gather(0, ("model",), 16, False),)
    # Nine cells in blocks of 2 over eight devices are not two blocks of 5: all is gathered and sliced again.
    uneven = changes((9,), (("data", "model"),), (("data",),))
    assert {axis for step in uneven if isinstance(step, Gather) for axis in step.axes} == {"data", "model"}
    assert isinstance(uneven[-1], Slice)


def test_equal_layouts_need_nothing_and_a_wider_consumer_a_cast():
    assert changes((8,), (("data",),), (("data",),)) == ()
    assert changes((8,), (("data",),), (("data",),), {"data", "model"}) == (Cast(("model",)),)


def test_a_cast_stands_where_fewest_cells_are_summed_for_its_gradient():
    # What is gathered is cast before: its gradient is scattered first, and a part of it summed. Slices are cast behind.
    gathered = changes((8, 6), (("model",), None), (None, None), {"data", "model"})
    assert gathered == (Cast(("data",)), Gather(0, ("model",), 8, True))
    alike = changes((8, 6), (("model",), None), (None, None), {"data"})
    assert alike == (Cast(("data",)), Gather(0, ("model",), 8, False))
    sliced = changes((8, 6), (None, None), (("model",), None), {"data", "model"})
    assert [type(step) for step in sliced] == [Slice, Cast]


def test_a_cut_into_smaller_blocks_is_free():
    assert changes((16,), (("data",),), (("data", "model"),)) == (Slice(0, Cut(("model",), 2), 16, alike=True),)


DEVICES = list(itertools.product(range(2), range(4)))
PADDING = -1


def _position(device, axes):
    index = 0
    for name in axes:
        index = index * SHAPE.size((name,)) + device[SHAPE.names.index(name)]
    return index


def _run(pieces, step):
    """One step in every device's terms: a piece is, for every axis, the global coordinates in local order."""

    def group(device, axes):
        kept = [number for number, name in enumerate(SHAPE.names) if name not in axes]
        members = [other for other in DEVICES if all(other[number] == device[number] for number in kept)]
        return sorted(members, key=lambda other: _position(other, axes))

    def sliced(cells, device, cut_of):
        padded = cells + [PADDING] * (cut_of.block * SHAPE.size(cut_of.axes) - len(cells))
        start = _position(device, cut_of.axes) * cut_of.block
        return padded[start : start + cut_of.block]

    def gathered(device, axis, axes, size):
        return list(itertools.chain.from_iterable(pieces[other][axis] for other in group(device, axes)))[:size]

    after = {device: list(piece) for device, piece in pieces.items()}
    for device in DEVICES:
        match step:
            case Cast():
                pass
            case Slice(axis, cut_of, _):
                after[device][axis] = sliced(pieces[device][axis], device, cut_of)
            case Gather(axis, axes, size, _):
                after[device][axis] = gathered(device, axis, axes, size)
            case Exchange(source, target, size, _, cut_of):
                after[device][source] = gathered(device, source, cut_of.axes, size)
                after[device][target] = sliced(pieces[device][target], device, cut_of)
    return after


def _held(shape, layout):
    """What each device holds in a layout, from the definition: cell `i` lies on device `i // block`."""
    pieces = {device: [list(range(size)) for size in shape] for device in DEVICES}
    for axis, (size, axes) in enumerate(zip(shape, layout, strict=True)):
        if axes is not None:
            block = -(-size // SHAPE.size(axes))
            for device in DEVICES:
                cells = [cell for cell in range(size) if cell // block == _position(device, axes)]
                pieces[device][axis] = cells + [PADDING] * (block - len(cells))
    return pieces


LAYOUTS = [
    (None, None),
    (("data",), None),
    (None, ("data",)),
    (("model",), ("data",)),
    (("data", "model"), None),
    (None, ("data", "model")),
    (("data",), ("model",)),
    (None, ("model", "data")),
]


@pytest.mark.parametrize("shape", [(8, 16), (7, 9)], ids=str)
def test_every_change_of_layout_moves_the_right_cells(shape):
    for source, target in itertools.product(LAYOUTS, LAYOUTS):
        pieces = _held(shape, source)
        for step in changes(shape, source, target):
            pieces = _run(pieces, step)
        assert pieces == _held(shape, target), f"{source} -> {target}"


def test_changed_shapes_follow_the_steps():
    steps = changes((7, 9), (("model",), None), (None, ("model",)))
    assert [changed_shape((2, 9), step, SHAPE) for step in steps] == [(7, 3)]
    assert changed_shape((2, 9), Gather(0, ("model",), 7, True), SHAPE) == (7, 9)
