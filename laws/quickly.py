"""Less work for XLA, where programs are many and each runs a few times."""

from __future__ import annotations

import os

import jax

_IS_EARLY = jax.__version_info__ < (0, 11)


def compile_quickly() -> None:
    """Let XLA optimise little in this process and in those that it starts, unless `XLA_FLAGS` is set.

    Laws are many small programs that run a few times: on two cores those of `Moments` take 15 seconds so, and 81 with
    all of XLA's optimisations. `tapestry laws` calls it; a `conftest.py` may, before anything asks JAX for devices or
    arrays. Results are rounded a little differently from those of a program that is compiled as usual.

    Example:
      >>> import tapestry_jax as tp
      >>> tp.laws.compile_quickly()
    """
    os.environ.setdefault("XLA_FLAGS", " ".join(f"--{name}={str(value).lower()}" for name, value in _FLAGS.items()))


def quick_options() -> dict[str, int | bool]:
    """The same for one program, as `jax.jit` takes it; nothing where other compilers would have to know the options."""
    return dict(_FLAGS) if jax.default_backend() == "cpu" else {}


_FLAGS: dict[str, int | bool] = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    # Later ones end the process at these.
    **({"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1} if _IS_EARLY else {}),
}
