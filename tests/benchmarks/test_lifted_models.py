"""Models of other packages: the page says what was measured; and, where a package is installed, they agree."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from benchmarks.lifted import kept, measure, page
from benchmarks.lifted.entry import Entry, Lifted, normal
from benchmarks.lifted.measure import with_gradients
from benchmarks.lifted.registry import ENTRIES

ROOT = Path(__file__).parents[2]
KNOWN = [("diffrax", "ODE, adaptive steps")]
"""Lifted and equal unplanned: tp.search raises, and its gradient does not run on a mesh, with plain JAX neither."""
HERE = ("flax", "optax")
"""Packages that every environment has."""
MODULES = {
    "dm-haiku": "haiku",
    "e3nn-jax": "e3nn_jax",
    "jax-cfd": "jax_cfd",
    "mamba2-jax": "mamba2_jax",
    "nano-moe-jax": "nano_moe",
    "ott-jax": "ott",
}
"""Packages whose modules are called otherwise."""


def test_the_page_says_what_was_measured() -> None:
    assert page.FILE.read_text(encoding="utf-8") == page.page(kept.read()), (
        "write it: python -m benchmarks.lifted --write"
    )


def test_every_model_is_told_apart_and_was_measured() -> None:
    keys = [kept.key(entry) for entry in ENTRIES]
    assert len(set(keys)) == len(keys) >= 20
    assert set(keys) == set(kept.read())


def test_every_package_is_pinned() -> None:
    text = (ROOT / "benchmarks/lifted/requirements.txt").read_text() + (ROOT / "constraints.txt").read_text()
    assert {entry.package for entry in ENTRIES} <= set(re.findall(r"^([\w-]+)==", text, re.MULTILINE))


def test_every_model_of_the_page_has_equal_values_and_gradients() -> None:
    wrong = [kept.key(entry) for entry in ENTRIES if not page.holds(kept.read()[kept.key(entry)])]
    assert wrong == KNOWN


def test_another_gradient_and_another_value_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    @jax.custom_jvp
    def wrong(x: Any) -> Any:
        return x * x

    wrong.defjvp(lambda primals, tangents: (wrong(primals[0]), 3 * primals[0] * tangents[0]))
    entry = Entry("square", "", "flax", lambda: Lifted(lambda x: x * x, (normal(8),), "i", {"i": "data"}))
    lift = tp.lift
    assert page.holds(measure.measure(entry, None) | {"found": {"value": 0.0, "gradient": 0.0}})
    monkeypatch.setattr(tp, "lift", lambda function, *args, **options: lift(wrong, *args, **options))
    answer = measure.measure(entry, None)
    assert answer["unplanned"]["value"] == 0.0 and answer["by hand"]["gradient"] > 0.1 and not page.holds(answer)
    monkeypatch.setattr(tp, "lift", lambda function, *args, **options: lift(lambda x: x * x + 1e-3, *args, **options))
    assert measure.measure(entry, None)["unplanned"]["value"] > page.TOLERANCE


def test_what_is_refused_and_what_is_not_equal_is_told_on_the_page() -> None:
    answers = kept.read()
    first, second = kept.key(ENTRIES[0]), kept.key(ENTRIES[1])
    answers[first] = {"package": first[0], "name": first[1], "why": "GraphError: no"}
    answers[second] = answers[second] | {"unplanned": {"value": 0.5, "gradient": 0.0}}
    text = page.page(answers)
    assert f"- {first[1]} of `{first[0]}`: GraphError: no" in text
    assert f"- {second[1]} of `{second[0]}` differs by 5e-01." in text


def test_gradients_are_those_of_every_floating_argument() -> None:
    args = (jnp.arange(3.0), jnp.arange(3), {"z": jnp.array([1 + 2j])})
    _, gradients = with_gradients(lambda x, k, z: (x**2 * k, z["z"] * 2), args)(*args)
    assert Counter(str(leaf.dtype) for leaf in gradients) == {"float32": 1, "complex64": 1}
    assert jnp.allclose(gradients[0], 2 * args[0] * args[1] * jnp.array([-2.5, -1.5, -0.5]) / 3)


# Packages warn of each other's versions, and of their own end.
# Layers and models of Flax are lifted in tests/tapestry_jax/lifting/test_models.py.
@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "entry",
    [pytest.param(e, id="/".join(kept.key(e))) for e in ENTRIES],
)
def test_a_model_is_lifted_and_equal(entry: Entry) -> None:
    module = MODULES.get(entry.package, entry.package)
    if entry.package not in HERE and importlib.util.find_spec(module) is None:
        pytest.skip(f"needs {entry.package}: make models")
    answer = measure.measure(entry, None)
    if kept.key(entry) in KNOWN:
        return
    assert "why" not in answer and "why" not in answer["by hand"], answer
    assert page.holds(answer | {"found": {"value": 0.0, "gradient": 0.0}}), answer
