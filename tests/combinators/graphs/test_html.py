"""What notebooks show of a graph: the table of `show`, names as texts, and the beginning of what is long."""

from __future__ import annotations

import re

import jax.numpy as jnp

from combinators import Map, TensorType, named, trace
from combinators.graphs.html import MOST, graph_table, table

T = TensorType({"n": 2})


def test_a_graph_is_the_table_that_it_prints():
    graph = trace(lambda x: named("h", Map(jnp.sin)(x)) + 1, T)
    html = graph._repr_html_()
    assert html == graph_table(graph)
    cells = re.findall(r"<td[^>]*>(.*?)</td>", html)
    assert cells == [
        "x",
        "input",
        "float32(n=2)",
        "sin",
        "n -&gt; n",
        "float32(n=2)",
        "add",
        "n -&gt; n",
        "float32(n=2)",
    ]
    assert "lambda: y = add" in html


def test_names_are_texts():
    html = trace(lambda given: given["<b>$x$</b>"] + 1, {"<b>$x$</b>": T})._repr_html_()
    assert "<b>" not in html
    assert "$" not in html
    assert "given/&lt;b&gt;&#36;x&#36;&lt;/b&gt;" in html


def test_of_a_long_table_the_beginning_is_shown():
    html = table("long", ("a",), [(str(number),) for number in range(MOST + 5)])
    assert html.count("<tr>") == 1 + MOST + 1
    assert '<tr><td colspan="1">and 5 more rows</td></tr>' in html
