"""What notebooks show of a plan: a small table, equal layers once, names as texts, and nothing that runs."""

from __future__ import annotations

import re

import pytest

from tests.tapestry_jax.report.page import plans

KNOWN = {"table", "caption", "thead", "tbody", "tr", "th", "td"}


def cells(html: str) -> list[list[str]]:
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", html)][1:]


@pytest.mark.parametrize("make", [plans.mlp, plans.transformer, plans.pipeline, plans.ring, plans.hostile, plans.empty])
def test_a_table_holds_no_script_no_style_sheet_and_no_markup_of_users(make):
    html = make()._repr_html_()
    assert set(re.findall(r"<(\w+)", html)) <= KNOWN
    assert set(re.findall(r' (\w+)="', html)) <= {"style", "colspan"}
    assert "$" not in html


def test_operations_say_where_their_dimensions_go_and_what_they_send():
    rows = cells(plans.mlp()._repr_html_())
    assert ["matmul_1", "batch:data mlp:model out", "all-reduce model 4,096 B"] in rows
    assert ["up", "float32(embed=64, mlp=256): mlp:model", ""] in rows


def test_equal_layers_stand_once():
    rows = cells(plans.transformer()._repr_html_())
    names = [row[0] for row in rows]
    assert "decoder/0..11 x12/mlp/down/einsum" in names
    assert not any("decoder/1/" in name for name in names)
    (row,) = [row for row in rows if row[0] == "decoder/0..11 x12/mlp/down/einsum"]
    assert row[2].startswith("all-reduce model")


def test_loops_stand_above_what_runs_in_them():
    rows = cells(plans.pipeline()._repr_html_())
    assert rows[0][:2] == ["stack by 4 chunks of batch", "7 turns, 4 stages, bubble 3/7 (43%)"]
    assert rows[1][:2] == ["\u2003stack", "1 turn"]
    assert ["\u2003\u2003stack/gelu", "batch:data+4 chunks mlp", ""] in rows
