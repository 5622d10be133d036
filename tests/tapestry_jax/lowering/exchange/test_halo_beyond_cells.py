"""Windows over more devices than cells, as XLA compiles them for users: the suite's own flags hide its fused loops."""

from __future__ import annotations

from tests import forked

_PROGRAM = """
import jax
jax.config.update("jax_num_cpu_devices", 8)
import numpy as np
import tapestry_jax as tp
x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
kernel = lambda w: sum(w[i : len(w) - 2 + i] for i in range(3))
smooth = tp.Map(kernel, "(a+[k]-1) c -> a c", boundary="reflect", sizes={"k": 3})
graph = tp.trace(smooth, jax.ShapeDtypeStruct(x.shape, np.float32))
wide = np.pad(x, [(1, 1), (0, 0)], mode="reflect")
plan = tp.plan(graph, tp.mesh(data=8), {"a": "data"})
np.testing.assert_allclose(plan.compile()(x), sum(wide[i : i + 5] for i in range(3)), rtol=1e-5, atol=1e-6)
"""


def test_reflected_windows_over_more_devices_than_cells() -> None:
    # XLA reads its flags when a device is first looked at.
    ran = forked.run(_PROGRAM, env={"XLA_FLAGS": ""})
    assert ran.returncode == 0, ran.stderr
