"""Graphs as text and as Mermaid flow charts."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import combinators as tp
from combinators import GraphError, TensorType

MATMUL = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)
GELU = tp.Map(jax.nn.gelu)
X = TensorType({"b": 4, "e": 3})
SQUARE = TensorType({"e": 3, "m": 3})


@tp.program
def block(x: Any, w: Any) -> Any:
    return x + GELU(MATMUL(x, w)).rename(m="e")


def test_text_has_one_line_a_node() -> None:
    graph = tp.trace(lambda x, w: (GELU(MATMUL(x, w)), x.rename(e="m")), X, TensorType({"e": 3, "mlp": 5}))
    assert graph.show() == (
        "lambda: y/0 = gelu, y/1 = rename\n"
        "x       input                               float32(b=4, e=3)\n"
        "w       input                               float32(e=3, mlp=5)\n"
        "matmul  b e, e mlp -> b mlp; fold e by Sum  float32(b=4, mlp=5)\n"
        "gelu    b mlp -> b mlp                      float32(b=4, mlp=5)\n"
        "rename  rename e to m                       float32(b=4, m=3)"
    )


def test_text_says_what_scans_windows_and_coordinates_do() -> None:
    blur = tp.Map(lambda x: x[1:] + x[:-1], "(y+[dy]) -> y", sizes={"dy": 2}, boundary="edge", name="blur")
    cumsum = tp.Scan(tp.monoids.Sum, "... t -> ... t", over="t")

    def program(x: Any) -> Any:
        return blur(cumsum(x)), tp.index("row", like=x)

    lines = tp.trace(program, TensorType({"row": 6})).show().splitlines()
    assert lines[2:] == [
        "scan   row -> row; scan row by Sum       float32(row=6)",
        "blur   (row+[dy]) -> row; boundary edge  float32(row=6)",
        "index  @row -> row                       int32(row=6)",
    ]


def test_loops_show_their_bodies_below_them() -> None:
    lines = tp.trace(tp.stack(block, 5), X, TensorType({"layer": 5, "e": 3, "m": 3})).show().splitlines()
    assert lines[3].startswith("stack") and "loop 5 times over layer" in lines[3]
    assert lines[4].startswith("  carry/0") and lines[6].startswith("  block/matmul")


def test_equal_scopes_in_a_row_are_folded() -> None:
    def deep(x: Any, *weights: Any) -> Any:
        for w in weights:
            x = block(x, w)
        return x

    lines = tp.trace(deep, X, *[SQUARE] * 12).show().splitlines()
    assert len(lines) == 1 + 13 + 4
    assert [line.split("  ")[0] for line in lines[-4:]] == [
        f"block..block_11 x12/{name}" for name in ("matmul", "gelu", "rename", "add")
    ]


def numbered(layers: int, odd: int | None = None) -> list[str]:
    def decoder(x: Any, *weights: Any) -> Any:
        recording = x.trace
        with recording.scope("decoder"):
            for number, w in enumerate(weights):
                with recording.scope(str(number)):
                    x = block(x, w) if number != odd else block(x, w) * 2
        return x

    return tp.trace(decoder, X, *[SQUARE] * layers).show().splitlines()[1 + 1 + layers :]


def test_numbered_scopes_are_folded_to_a_range() -> None:
    assert [line.split("  ")[0] for line in numbered(12)] == [
        f"decoder/0..11 x12/block/{name}" for name in ("matmul", "gelu", "rename", "add")
    ]


def test_a_scope_that_differs_is_shown_for_itself() -> None:
    paths = [line.split("  ")[0] for line in numbered(4, odd=2)]
    assert paths[0] == "decoder/0..1 x2/block/matmul"
    assert paths[4:9] == [
        f"decoder/2/{name}" for name in ("block/matmul", "block/gelu", "block/rename", "block/add", "multiply")
    ]
    assert paths[9] == "decoder/3/block/matmul"


def test_mermaid_draws_every_node_and_every_edge() -> None:
    graph = tp.trace(block, X, SQUARE)
    lines = graph.show("mermaid").splitlines()
    assert lines[0] == "flowchart TD"
    assert '  n2["matmul<br/>b e, e m -#62; b m; fold e by Sum<br/>float32(b=4, m=3)"]' in lines
    edges = {tuple(re.findall(r"n\d+", line)) for line in lines if " --> n" in line}
    expected = {(f"n{ref.node}", f"n{index}") for index, node in enumerate(graph.nodes) for ref in node.operands}
    assert edges == expected
    assert lines[-2:] == ['  out0(["y"])', "  n5 --> out0"]


def test_mermaid_puts_a_loop_body_into_a_subgraph() -> None:
    lines = tp.trace(tp.iterate(lambda c: GELU(c), 3), X).show("mermaid").splitlines()
    assert '  n1[["iterate<br/>loop 3 times<br/>float32(b=4, e=3)"]]' in lines
    inside = lines[lines.index('  subgraph n1_body ["iterate: each step"]') : lines.index("  end")]
    assert "    n1_0 --> n1_1" in inside


def test_mermaid_labels_hold_no_markup() -> None:
    graph = tp.trace(tp.Map(jnp.sin, "b [e] -> b [e]", name='a"]<b>|`#'), X)
    label = graph.show("mermaid").splitlines()[2]
    assert label == '  n1["a#34;#93;#60;b#62;#124;#96;#35;<br/>b #91;e#93; -#62; b #91;e#93;<br/>float32(b=4, e=3)"]'


def test_another_format_is_refused() -> None:
    with pytest.raises(GraphError) as caught:
        tp.trace(GELU, X).show("dot")
    assert str(caught.value) == 'a graph cannot be shown as \'dot\'\n  Choose the format "text" or "mermaid".'
