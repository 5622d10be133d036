"""What a fabric refuses, in which words; and that it is as it was before."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tapestry_jax as tp

X = tp.TensorType({"row": 4, "col": 3})


@pytest.fixture
def fabric() -> Iterator[tp.Fabric]:
    with tp.Fabric(None) as fabric:
        fabric.allocate("x", X)
        fabric.allocate("y", tp.TensorType({"row": 4, "col": 3}, jnp.int32))
        fabric.allocate("keys", tp.TensorType({"key": 4, "col": 3}))
        yield fabric


@pytest.mark.parametrize(
    "name",
    ["a", "A/b.c-d_1", "_", "9", "naïve/ß", "名前", "x" * 200, "model.layers.0.weight", "null", "select", "catalogue"],
)
def test_names_that_can_be(name: str):
    with tp.Fabric(None) as fabric:
        fabric.allocate(name, X)
        fabric.snapshot(name)
        assert fabric.list() == (name,) == fabric.snapshots()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "it is empty"),
        ("x" * 201, "it has 201 characters, and at most 200 are read"),
        ("../x", "each part begins with a letter, a digit or `_`"),
        ("a/../b", "each part begins with a letter, a digit or `_`"),
        ("/etc/passwd", "each part begins with a letter, a digit or `_`"),
        ("a//b", "each part begins with a letter, a digit or `_`"),
        ("a/", "each part begins with a letter, a digit or `_`"),
        (".hidden", "each part begins with a letter, a digit or `_`"),
        ("-x", "each part begins with a letter, a digit or `_`"),
        ("x'; DROP TABLE tensors; --", 'it has the character "\'"'),
        ('x" OR 1=1', "it has the character '\"'"),
        ("a b", "it has the character ' '"),
        ("a\\b", "it has the character '\\\\'"),
        ("a\x00b", "it has the character '\\x00'"),
        ("a\nb", "it has the character '\\n'"),
        ("a\u202eb", "it has the character '\\u202e'"),
        ("\ud800", "it has the character '\\ud800'"),
        ("e\u0301", "its accents are characters of their own, expected the normal form NFC"),
        ("tapestry", "`tapestry` is kept for the fabric itself"),
        ("tapestry/x", "`tapestry` is kept for the fabric itself"),
        (None, "it is no text"),
        (3, "it is no text"),
        (b"x", "it is no text"),
    ],
)
def test_names_that_cannot_be(fabric: tp.Fabric, name: Any, why: str):
    for give in (
        lambda: fabric.allocate(name, X),
        lambda: fabric.load(name, np.zeros(2)),
        lambda: fabric.apply(lambda x: x + 1, "x", out=name),
        lambda: fabric.create(name),
        lambda: fabric.snapshot(name),
    ):
        with pytest.raises(tp.FabricError) as raised:
            give()
        # A list of outputs is read as one, so that None and numbers are told there.
        assert why in str(raised.value) or "out= of apply" in str(raised.value)
    assert fabric.list() == ("keys", "x", "y")


@pytest.mark.parametrize("name", ["x' OR '1'='1", "'; DROP TABLE tensors; --", "%", "_", "*", "x\x00", "\ud800"])
def test_questions_are_parameters(tmp_path: Path, name: str):
    with tp.Fabric(tmp_path / "f") as fabric:
        fabric.allocate("x", X)
        for ask in (fabric.read, fabric.describe, fabric.delete, fabric.array, fabric.restore, fabric.check):
            with pytest.raises(tp.FabricError, match="there is no"):
                ask(name)
        assert name not in fabric and fabric.list() == ("x",)


BOXES: list[tuple[Any, str]] = [
    ({"rows": slice(0, 1)}, "it has no axis 'rows'"),
    ({2: slice(0, 1)}, "it has no axis 2"),
    ({"row": slice(0, 1), 0: slice(0, 1)}, "it names an axis twice"),
    ({"row": slice(0, 4, 2)}, "axis row: expected a slice without a step, got slice(0, 4, 2)"),
    ({"row": 1}, "axis row: expected a slice without a step, got 1"),
    ({"row": slice(0, 5)}, "axis row: slice(0, 5, None) does not lie in 0:4"),
    ({"row": slice(-5, 4)}, "axis row: slice(-5, 4, None) does not lie in 0:4"),
    ({"row": slice(3, 1)}, "axis row: slice(3, 1, None) does not lie in 0:4"),
    ({"row": slice(0.0, 2.0)}, "axis row: expected a slice without a step"),
    ({"row": slice(False, True)}, "axis row: expected a slice without a step"),
    ((slice(0, 1),), "expected 2 slices, got 1"),
    ("row", "it is a str"),
    (slice(0, 1), "it is a slice"),
]


@pytest.mark.parametrize(("box", "why"), BOXES, ids=str)
def test_boxes_that_cannot_be(fabric: tp.Fabric, box: Any, why: str):
    for ask in (
        lambda: fabric.read("x", box),
        lambda: fabric.write("x", np.zeros(1, np.float32), box),
        lambda: fabric.copy("x", box, "x", None),
        lambda: fabric.copy("x", None, "x", box),
    ):
        with pytest.raises(tp.FabricError) as raised:
            ask()
        assert why in str(raised.value) and "'x'" in str(raised.value)


def test_boxes_are_read_as_python_reads_slices(fabric: tp.Fabric):
    fabric.write("x", np.arange(12, dtype=np.float32).reshape(4, 3))
    for box in ({"row": slice(-2, None)}, {0: slice(2, 4)}, (slice(2, 4), slice(None)), ((2, 4), None)):
        assert fabric.read("x", box).tolist() == [[6, 7, 8], [9, 10, 11]]


REFUSED: dict[str, tuple[Callable[[tp.Fabric], Any], str]] = {
    "dtype": (
        lambda fabric: fabric.copy("x", None, "y"),
        "copy 'x' -> 'y': the dtypes differ\n  expected int32, got float32\n"
        "  Pass cast=True to convert, or allocate the "
        "target with the dtype of the source.",
    ),
    "axes": (
        lambda fabric: fabric.copy("x", None, "keys"),
        "copy 'x' -> 'keys': the axes are not the same\n  the source is float32(row=4, col=3)\n  the target is "
        'float32(key=4, col=3)\n  Say which is which, such as rename={"seq": "keys"}.',
    ),
    "sizes": (
        lambda fabric: fabric.copy("x", {"row": slice(0, 2)}, "x", {"row": slice(0, 3)}),
        "copy 'x' -> 'x': the boxes differ in size\n  expected row=0:2, col=0:3\n  got row=0:3, col=0:3\n"
        "  Give boxes of one size.",
    ),
    "missing": (
        lambda fabric: fabric.copy("w", None, "x"),
        "there is no tensor 'w'\n  the fabric in memory has keys, x, y\n  Name one that is there.",
    ),
    "taken": (
        lambda fabric: fabric.allocate("x", X),
        "allocate 'x': 'x' is there already\n  it is float32(row=4, col=3)\n"
        "  Choose another name, or pass overwrite=True.",
    ),
    "layout": (
        lambda fabric: fabric.allocate("z", X, layout={"row": "data"}),
        "allocate 'z': a layout needs a mesh\n  got {'row': 'data'}\n  Open the fabric with a mesh: tp.Fabric(path, "
        "mesh=mesh).",
    ),
    "plan": (
        lambda fabric: fabric.apply(lambda x: x + 1, "x", out="z", plan={"row": "data"}),
        "apply 'x' -> 'z': a plan needs a mesh\n  got {'row': 'data'}\n  Open the fabric with a mesh: tp.Fabric(path, "
        "mesh=mesh).",
    ),
    "results": (
        lambda fabric: fabric.apply(lambda x: (x + 1, x - 1), "x", out="z"),
        "apply 'x' -> 'z': the program has other results\n  it gives 2: y/0, y/1\n  got 1 names\n"
        "  Name each of them in "
        'order: out=("y", "z").',
    ),
    "outputs": (
        lambda fabric: fabric.apply(lambda x: (x + 1, x - 1), "x", out=("z", "z")),
        'apply: outputs need names of their own\n  got z, z\n  Write out=("y", "z").',
    ),
    "types": (
        lambda fabric: fabric.apply(tp.trace(lambda x: x + 1, X), "y", out="z"),
        "apply 'y' -> 'z': these tensors do not fit\n"
        "  x: expected float32(row=4, col=3), got 'y', int32(row=4, col=3)\n"
        "  Name one tensor for each of its inputs, in order.",
    ),
    "count": (
        lambda fabric: fabric.apply(tp.trace(lambda x: x + 1, X), "x", "x", out="z"),
        "apply 'x', 'x' -> 'z': these tensors do not fit\n  it takes 1, got 2\n"
        "  Name one tensor for each of its inputs, "
        "in order.",
    ),
    "holders": (
        lambda fabric: fabric.apply(tp.nnx.Linear(3, 2, rngs=nnx.Rngs(0)), "x", out="z"),
        "the program has arrays of its own",
    ),
    "array": (
        lambda fabric: fabric.write("x", np.zeros((4, 2), np.float32)),
        "write 'x': the array has another shape\n  expected (4, 3) for row=0:4, col=0:3, got (4, 2)\n  Give the box as "
        "large.",
    ),
    "chunks": (
        lambda fabric: fabric.allocate("z", X, chunks=(2, 0)),
        "allocate 'z': these are no sizes of blocks\n  expected 2 sizes for float32(row=4, col=3), got (2, 0)\n  Write "
        "chunks=(64, 512).",
    ),
    "snapshot": (
        lambda fabric: fabric.restore("never"),
        "there is no snapshot 'never'\n  there are none\n  Name one that is there.",
    ),
    "flag": (lambda fabric: fabric.allocate("x", X, overwrite="no"), "overwrite= is not what it should be"),
    "axis names": (
        lambda fabric: fabric.load("z", np.zeros((2, 2), np.float32), names=("a b", "c")),
        "load 'z': an array in memory, float32 (2, 2) is no tensor",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_these_words(fabric: tp.Fabric, case: str):
    call, text = REFUSED[case]
    before = {name: fabric.describe(name) for name in fabric}
    with pytest.raises(tp.TapestryError) as raised:
        call(fabric)
    assert str(raised.value) == text if "\n" in text else text in str(raised.value)
    assert {name: fabric.describe(name) for name in fabric} == before


def test_sixty_four_bits_are_kept_and_never_halved_silently(tmp_path: Path):
    x = np.array([1 + 2.0**-40, 2.0])
    with tp.Fabric(tmp_path / "f") as fabric:
        fabric.load("x", x)
        assert fabric.read("x").tolist() == x.tolist()
        for ask in (lambda: fabric.array("x"), lambda: fabric.apply(lambda x: x + 1, "x", out="y")):
            with pytest.raises(tp.FabricError, match="JAX computes in 32 bits here\n  expected float32, got float64"):
                ask()
        fabric.allocate("half", tp.TensorType((2,)))
        fabric.copy("x", None, "half", cast=True)
        assert fabric.array("half").tolist() == [1.0, 2.0]
    with tp.Fabric(None, mesh=tp.mesh(data=2)) as fabric:
        for ask in (lambda: fabric.load("x", x), lambda: fabric.allocate("x", tp.TensorType((2,), np.int64))):
            with pytest.raises(tp.FabricError, match="JAX computes in 32 bits here"):
                ask()


def test_imaginary_parts_are_not_dropped(fabric: tp.Fabric):
    fabric.allocate("c", tp.TensorType({"row": 4, "col": 3}, jnp.complex64))
    with pytest.raises(tp.FabricError, match="from complex64 to float32 the imaginary part would be dropped"):
        fabric.copy("c", None, "x", cast=True)
    fabric.copy("x", None, "c", cast=True)


def test_name_that_is_taken_meanwhile_is_refused_and_nothing_is_left(tmp_path: Path):
    with tp.Fabric(tmp_path / "f") as fabric:
        fabric.allocate("x", X)

        def program(x: Any) -> Any:
            fabric.allocate("b", X)  # as another process might
            return x + 1, x - 1

        with pytest.raises(tp.FabricError, match="'b' is there already"):
            fabric.apply(program, "x", out=("a", "b"))
        assert fabric.list() == ("b", "x")
        assert list((tmp_path / "f" / "blocks").glob("*/[0-9]*")) == []


@pytest.mark.parametrize("path", ["", 3, b"x", "a\0b"])
def test_paths_that_are_none(path: Any):
    with pytest.raises(tp.FabricError):
        tp.Fabric(path)


def test_folder_with_something_else_is_refused(tmp_path: Path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(tp.FabricError, match=r"is no fabric, and not empty\n  it holds letter.txt\n"):
        tp.Fabric(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


@pytest.mark.parametrize("name", ["opening", "blocks"])
def test_folder_whose_parts_are_something_else_is_refused(tmp_path: Path, name: str):
    tp.Fabric(tmp_path / "f").close()
    place = tmp_path / "f" / name
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    place.symlink_to(tmp_path)
    with pytest.raises(tp.FabricError, match=r"f' cannot be opened\n  .*\n  Look at what lies in it"):
        tp.Fabric(tmp_path / "f")


def test_closed_fabric_is_refused(tmp_path: Path):
    fabric = tp.Fabric(tmp_path / "f")
    fabric.allocate("x", X)
    fabric.close()
    with pytest.raises(tp.FabricError, match=r"the fabric is closed\n.*\n  Open it again: with tp.Fabric\(path\)"):
        fabric.read("x")
    fabric.close()


def test_more_blocks_than_have_numbers_are_refused(fabric: tp.Fabric):
    many = tp.TensorType({"row": 2**40, "col": 2**23})
    with pytest.raises(tp.FabricError) as told:
        fabric.allocate("many", many, chunks=(1, 1))
    assert str(told.value).startswith(
        "a tensor has too many blocks\n  float32(row=1099511627776, col=8388608) in blocks (1, 1) has 9,2"
    )
    assert str(told.value).endswith("at most 9,223,372,036,854,775,807\n  Give it larger chunks.")
    fabric.allocate("many", many, chunks=(1, 2))
    last = {"row": slice(2**40 - 1, 2**40), "col": slice(2**23 - 1, 2**23)}
    fabric.write("many", np.ones((1, 1), np.float32), last)
    assert fabric.read("many", last) == 1
