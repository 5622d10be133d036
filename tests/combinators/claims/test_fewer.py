"""At which sizes kernels are asked: their own where those can be run, else fewer, which are cut as their own are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import io_callback

from combinators.claims.cut import Boxed
from combinators.claims.fewer import asked_at, few_of
from combinators.declared.runnable import excess, ways
from combinators.index_space.signature import Signature


def boxed(function: Callable[[Any], Any], rows: int, cols: int, signature: str = "a b -> a b") -> Boxed:
    def at(sizes: dict[str, int]) -> Any:
        try:
            return jax.make_jaxpr(function)(jax.ShapeDtypeStruct((sizes["a"], sizes["b"]), jnp.float32))
        except TypeError:
            return None

    return Boxed(Signature.parse(signature), {"a": rows, "b": cols}, [("a", "b")], None, list, at)


def sizes_of(kernel: Boxed, a: int, b: int | None = None) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    box = {"a": a, "b": kernel.sizes["b"] if b is None else b}
    return [(tuple(parts.sizes.values()), tuple(parts.box.values())) for parts in asked_at(kernel, box)]


def test_few_cells_are_asked_as_they_are() -> None:
    assert sizes_of(boxed(jnp.sin, 64, 4), 16) == [((64, 4), (16, 4))]


@pytest.mark.parametrize(("rows", "part"), [(1 << 24, 1 << 22), (1 << 40, 1 << 38), (9_999_991, 2_500_000)])
def test_of_many_fewer_are_asked_in_as_many_parts(rows: int, part: int) -> None:
    (((fewer, cols), (box, _)),) = sizes_of(boxed(jnp.sin, rows, 4), part)
    assert cols == 4 and -(-fewer // box) == -(-rows // part) == 4
    program = boxed(jnp.sin, fewer, 4).at({"a": fewer, "b": 4})
    assert 1 / 512 < excess(program) <= 1 / 16
    assert bool(rows % part) == bool(fewer % box)


def test_what_takes_rows_by_the_thousand_is_asked_by_thousands() -> None:
    kernel = boxed(lambda x: x.reshape(-1, 1000, x.shape[1]).sum(1, keepdims=True) + 0 * x[:1], 1 << 12, 4)
    thousands = Boxed(kernel.signature, {"a": 64_000_000, "b": 4}, kernel.shown, None, list, kernel.at)
    (((rows, _), (box, _)),) = sizes_of(thousands, 16_000_000)
    assert rows == 4 * box and box % 1000 == 0


@pytest.mark.parametrize("part", [1_250_001, 2_000_003, 4_000_016])
def test_what_takes_rows_by_pairs_is_asked_of_as_odd_boxes(part: int) -> None:
    (((rows, _), (box, _)),) = sizes_of(boxed(jnp.sin, 4 * part, 4), part)
    assert rows == 4 * box and box % 1024 == part % 1024


def test_where_the_code_is_another_one_it_is_asked_at_its_own_sizes_too() -> None:
    kernel = boxed(lambda x: x * 2 if len(x) > 1 << 17 else x + x, 1 << 18, 2)
    fewer, *_, own = sizes_of(kernel, 1 << 17)
    assert own == ((1 << 18, 2), (1 << 17, 2)) and fewer[0][0] < 1 << 16


def test_along_what_is_not_cut_as_little_as_has_to_be() -> None:
    ((sizes, box),) = sizes_of(boxed(jnp.sin, 4, 1 << 30), 1)
    assert sizes[0] == 4 and box[0] == 1 and 2 <= sizes[1] < 1 << 16


def test_what_is_needed_whole_is_made_less_where_it_is_too_much_alone() -> None:
    assert few_of(boxed(jnp.sin, 100, 7, "a [b] -> a [b]")) == {"a": 2, "b": 7}
    few = few_of(boxed(jnp.sin, 100, 1 << 26, "a [b] -> a [b]"))
    assert few["a"] == 2 and 1 << 10 < few["b"] < 1 << 21


def test_boxes_are_of_as_many_rows_as_a_kernel_may_take_together() -> None:
    kernel = boxed(lambda x: x * 2 if len(x) > 1 << 21 else x + x, 1 << 24, 1 << 12)
    found = sizes_of(kernel, 1 << 20)
    assert len(found) > 1 and all(box[0] % 16 == 0 for _, box in found)


def test_what_takes_no_fewer_is_asked_of_as_many_as_can_be_run() -> None:
    def function(x: Any) -> Any:
        if len(x) < 1 << 15:
            raise TypeError("too few")
        return x * 2

    (((rows, _), (box, _)),) = sizes_of(boxed(function, 1 << 24, 4), 1 << 22)
    assert box >= 1 << 15 and rows == 4 * box < 1 << 20


def test_what_the_shapes_of_a_program_say_is_kept_one_by_one() -> None:
    def function(x: Any) -> Any:
        return (x.reshape(-1, 1000, 4) * jnp.ones((7, 11)).sum()).reshape(x.shape)

    (((rows, _), (box, _)),) = sizes_of(boxed(function, 64_000_000, 4), 16_000_000)
    assert rows == 4 * box and box % 1000 == 0


def test_what_is_run_by_equations_is_asked_of_fewer_cells() -> None:
    def function(x: Any) -> Any:
        x = jax.lax.while_loop(lambda c: c.sum() < 9, lambda c: c * 2 + 1, x)
        for _ in range(100):
            x = jnp.sin(x)
        return x

    kernel = boxed(function, 1 << 22, 4)
    (parts,) = asked_at(kernel, {"a": 1 << 20, "b": 4})
    assert parts.ways == ["interpreted"] and parts.sizes["a"] == 4 * parts.box["a"]


def test_a_share_of_what_may_be_run_is_as_many_cells_fewer() -> None:
    kernel = boxed(jnp.sin, 1 << 24, 4)
    all_of, some = (next(asked_at(kernel, {"a": 1 << 22, "b": 4}, share)).sizes["a"] for share in (1, 1 / 4))
    assert all_of == 4 * some
    program = kernel.at({"a": 1 << 17, "b": 4})
    assert ways([program]) and not ways([program], 1 / 4)


def test_where_a_box_needs_too_much_whole_it_is_asked_of_less_of_that() -> None:
    by_hundreds = boxed(lambda x: x.reshape(len(x), -1, 128)[..., ::-1].reshape(x.shape), 8, 1 << 24, "a [b] -> a [b]")
    (((rows, cols), (box, same)),) = sizes_of(by_hundreds, 4)
    assert (rows, box) == (8, 4) and cols == same and cols % 128 == 0 and cols < 1 << 16


def test_what_can_never_be_run_is_not_asked() -> None:
    def acting(x: Any) -> Any:
        return io_callback(lambda y: y, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    assert sizes_of(boxed(acting, 1 << 30, 2), 1 << 28) == []
