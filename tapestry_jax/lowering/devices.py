"""Meshes as lowering needs them: with devices, and to run, with devices that hold arrays."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import jax
from jax.sharding import Mesh

from combinators.errors import MeshError, PlanError, message
from combinators.index_space.tensor_type import TensorType

# Where JAX begins to trace a jitted function: to call it, or to look at it.
_ENTRIES, _CALLED = "jax._src.pjit", "cache_miss"
_TRACED = frozenset(("jit_trace", "jit_lower", "jit_eval_shape"))
_TWO_BITS = frozenset(("int2", "uint2"))


def require_devices(mesh: Any) -> Mesh:
    """The mesh, if it has devices.

    Raises:
      MeshError: for an abstract one.
    """
    if isinstance(mesh, Mesh):
        return mesh
    raise MeshError(
        message(
            "this plan was made for an abstract mesh, which has no devices",
            f"got {mesh}",
            remedy="Plan again with a real mesh, such as tp.mesh(data=2, model=4).",
        )
    )


def is_compile_only(mesh: Any) -> bool:
    """Whether a mesh has devices that compile but hold no arrays, such as those of `tp.topology`."""
    if not isinstance(mesh, Mesh):
        return False
    client: Any = mesh.devices.flat[0].client
    return client.runtime_type == "compile_only_runtime"


def require_running(mesh: Any) -> Mesh:
    """The mesh, if its devices hold arrays.

    Raises:
      MeshError: for an abstract one, and for compile-only devices.
    """
    mesh = require_devices(mesh)
    if is_compile_only(mesh):
        raise only_compiles(mesh)
    return mesh


def refuse_calls(mesh: Any) -> None:
    """Refuse compile-only devices where a function of `jax.jit` is called, and not traced or lowered alone.

    JAX traces for both, compiles, and then ends in an AttributeError of its own. Only the stack tells them apart, by
    names that are JAX's own; where these are others, or it was traced before, that error is what is seen.

    Raises:
      MeshError: where what is traced here would run.
    """
    if is_compile_only(mesh) and _is_called():
        raise only_compiles(mesh)


def _is_called() -> bool:
    frame, entries = inspect.currentframe(), set[str]()
    while frame is not None:
        if frame.f_globals.get("__name__") == _ENTRIES:
            entries.add(frame.f_code.co_name)
        frame = frame.f_back
    return _CALLED in entries and _TRACED.isdisjoint(entries)


def only_compiles(mesh: Mesh) -> MeshError:
    """The error of a program that should run on compile-only devices."""
    return MeshError(
        message(
            "these devices only compile: they hold no arrays and run nothing",
            f"got {mesh.devices.flat[0].device_kind} x {mesh.size}",
            remedy="Ask the compiler with plan.compile_only(), or plan again for devices of this machine: tp.mesh.",
        )
    )


def require_sendable(kinds: Iterable[TensorType], mesh: Any) -> None:
    """Refuse elements of two bits where XLA for CPUs would send them: it sends others, and may end the process.

    Found by `jax.shard_map` alone (jax 0.10.2): what an all-gather of `int2` brings is wrong from some place on.

    Raises:
      PlanError: for several CPU devices and values of such a type.
    """
    if not isinstance(mesh, Mesh) or mesh.size == 1 or mesh.devices.flat[0].platform != "cpu":
        return
    for kind in kinds:
        if kind.dtype.name in _TWO_BITS:
            raise PlanError(
                message(
                    f"the plan holds values of {kind.dtype.name} on {mesh.size} CPU devices",
                    "XLA for CPUs sends elements of two bits wrongly from one device to another",
                    remedy="Take int4, int8 or another type for what is planned, or a mesh of one device.",
                )
            )


def check_ambient_mesh(mesh: Any) -> None:
    """Hold the mesh that is set, as by `jax.set_mesh`, against that of a program which is called there.

    Raises:
      MeshError: where another one is.
    """
    ambient = jax.sharding.get_abstract_mesh()
    own = getattr(mesh, "abstract_mesh", mesh)
    if ambient.empty or ambient == own:
        return
    if ambient.manual_axes:
        raise MeshError(
            message(
                "a planned program is called inside of a kernel that a plan runs, or of jax.shard_map",
                f"the plan's  {_told(own)}",
                f"set         {_told(ambient)}: a block of one device is there, which has no mesh to be cut over",
                remedy="Call the program and not its compiled plan, outside of the kernel, and plan all of it at once.",
            )
        )
    raise MeshError(
        message(
            "a planned program is called where another mesh is set than its plan's",
            f"the plan's  {_told(own)}",
            f"set         {_told(ambient)}",
            remedy="Call it outside of jax.set_mesh, or of jax.shard_map, or plan for the mesh that is set.",
        )
    )


def _told(mesh: Any) -> str:
    axes = " x ".join(f"{name}={size}" for name, size in mesh.shape.items())
    return f"{axes} ({', '.join(sorted({kind.name for kind in mesh.axis_types}))})"


def is_traced(leaf: Any) -> bool:
    """Whether an argument stands for an array while a program is traced, and is none itself."""
    try:
        getattr(leaf, "addressable_shards", None)
    except jax.errors.ConcretizationTypeError:
        return True
    except RuntimeError:  # it was deleted
        return False
    return False
