"""Eight simulated CPU devices, the meshes that tests share, the `gpu` marker and the hypothesis profiles."""

from __future__ import annotations

import atexit
import gc
import importlib.util
import os
import signal
from pathlib import Path

import hypothesis
import jax
import pytest
from jax.sharding import AxisType, Mesh

from tests import collecting
from tests.quick.listed import is_left_out
from tests.quickly import quickly

SIMULATED_DEVICES = 8


def _has_cuda() -> bool:
    plugins = ("jax_cuda12_plugin", "jax_cuda13_plugin")
    return Path("/dev/nvidiactl").exists() and any(importlib.util.find_spec(name) for name in plugins)


# Tests compile many small programs once each: compile time counts, run time does not. Collectives stay the same. The
# older emitters of fused loops take a third of the time; XLA of jax 0.12 no longer has them, and ends the process
# at a flag that it does not know.
_FLAGS = ["--xla_backend_optimization_level=0", "--xla_llvm_disable_expensive_passes=true"]
if jax.__version_info__ < (0, 11):
    _FLAGS += ["--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1"]
os.environ.setdefault("XLA_FLAGS", " ".join(_FLAGS))

# Where in our files an instruction comes from, frame by frame, takes a tenth of the time, and no test reads it.
# (Without `jax_include_full_tracebacks_in_locations` XLA would lose the scopes of operations, too.)
jax.config.update("jax_traceback_in_locations_limit", 0)

# Tracing makes millions of small objects that live on in caches; looking at all of them again and again finds nothing.
gc.set_threshold(100_000, 50, 100)

# What is compiled once is read again by the other worker, and by the next run.
_COMPILED = Path(__file__).parents[1] / ".pytest_cache" / "compiled"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_COMPILED))
jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

# What a shell starts in the background ignores Ctrl-C, and so does what it starts; tests send it to themselves.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# At import, since the number of devices is fixed once jax has looked at one. With a GPU in the machine CPUs stay the
# default, so that the same tests see the same eight devices everywhere, and `gpu` tests ask for `jax.devices("gpu")`.
jax.config.update("jax_num_cpu_devices", SIMULATED_DEVICES)
if not jax.config.jax_platforms and _has_cuda():
    jax.config.update("jax_platforms", "cpu,cuda")

# No deadline: the first example of a property pays for compilation. What is found is made smaller, but not explained:
# that traces every line that runs and draws hundreds of examples more, also where a test looks for what must be found.
_PHASES = tuple(phase for phase in hypothesis.Phase if phase is not hypothesis.Phase.explain)
hypothesis.settings.register_profile("dev", deadline=None, max_examples=50, phases=_PHASES)
hypothesis.settings.register_profile(
    "ci", deadline=None, max_examples=50, phases=_PHASES, derandomize=True, print_blob=True
)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--thorough", action="store_true", help="run the tests marked `thorough` as well")
    parser.addoption("--quick", action="store_true", help="leave out those of tests/quick/left_out.txt")


def pytest_configure(config: pytest.Config) -> None:
    # Where there is no access to the options, tests/thoroughly.py looks here.
    if config.getoption("--thorough"):
        os.environ["TAPESTRY_THOROUGH"] = "1"
    # Arrays of NumPy are put without a program, JAX's own small ones run in NumPy, the others share contexts of MLIR.
    quickly()
    collecting.draw_without_our_numbers()
    # Not by its name, since hooks of this file are not asked about files outside of its folder.
    config.pluginmanager.register(collecting)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--thorough"):
        return
    quick = config.getoption("--quick")
    left_out = {
        item: None
        for item in items
        if item.get_closest_marker("thorough") is not None or (quick and is_left_out(item.nodeid))
    }
    config.hook.pytest_deselected(items=[*left_out])
    items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish() -> None:
    # What is imported by now stays; the collector need not look at it again.
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    # pytest has collected what its tests left; once more takes a worker many seconds. What Python collects when it ends
    # it has to see: packages in C++ count what they made, and say what is missing.
    gc.freeze()
    atexit.register(gc.unfreeze)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is not None and not _gpu_devices():
        pytest.skip("needs a GPU")


def _gpu_devices() -> list[jax.Device]:
    try:
        return jax.devices("gpu")
    except RuntimeError:
        return []


def _mesh(**axes: int) -> Mesh:
    devices = jax.devices("cpu")[:SIMULATED_DEVICES]
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes), devices=devices)


@pytest.fixture(scope="session")
def mesh8() -> Mesh:
    """Eight CPU devices in a row: `data=8`."""
    return _mesh(data=8)


@pytest.fixture(scope="session")
def mesh2x4() -> Mesh:
    """Eight CPU devices in a grid: `data=2`, `model=4`."""
    return _mesh(data=2, model=4)
