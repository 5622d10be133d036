"""Functions of arrays on values of a program: what the error advises runs."""

from __future__ import annotations

import re
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp

TYPE = tp.TensorType({"a": 4, "b": 3})
X = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


def f(x: Any) -> Any:
    return jnp.sort(x, axis=1)


@pytest.mark.parametrize("called", [jnp.sin, f, lambda x: tp.lift(f, TYPE)(x)])
def test_what_the_error_advises_runs(called: Any):
    with pytest.raises(tp.GraphError, match="a function of arrays was called on a value of a program") as told:
        tp.trace(called, TYPE)
    sine, sort, lifted = re.findall(r"tp\.(?:Map|lift)\(.*?\)(?:\(x\))?(?=[,.])", str(told.value))
    names = {"tp": tp, "jnp": jnp, "f": f}
    np.testing.assert_allclose(tp.trace(lambda x: eval(sine, names | {"x": x}), TYPE)(X), np.sin(X), rtol=1e-6)
    np.testing.assert_array_equal(tp.trace(lambda x: eval(sort, names | {"x": x}), TYPE)(X), np.sort(X, axis=1))
    np.testing.assert_array_equal(eval(lifted, names | {"specs": [TYPE]})(X), np.sort(X, axis=1))
