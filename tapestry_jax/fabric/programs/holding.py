"""What a program holds, such as the parameters of a module, as tensors of the fabric: lineage names them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from combinators.arrows.part import Part
from combinators.arrows.tracing import trace
from combinators.errors import message, spelt
from combinators.graphs.graph import Graph
from combinators.index_space.tensor_type import TensorType
from tapestry_jax.fabric.catalogue import reads
from tapestry_jax.fabric.drafts import check_free, commit, kind_of, write_draft
from tapestry_jax.fabric.errors import FabricError
from tapestry_jax.fabric.moving.reading import read_now
from tapestry_jax.fabric.opened import Opened
from tapestry_jax.fabric.tensors.boxes import slices, whole
from tapestry_jax.fabric.tensors.names import read_tensor_name


def hold(
    opened: Opened, function: Any, types: Sequence[TensorType], prefix: Any, overwrite: bool, where: str
) -> tuple[Graph, tuple[str, ...]]:
    """Keep the arrays that a program holds, and give its graph, which takes them first.

    Args:
      opened: the fabric.
      function: a module, or an arrow that holds arrays.
      types: of its other inputs.
      prefix: of the names that the arrays get.
      overwrite: whether tensors of these names are replaced; those that are equal stay as they are.
      where: who asks, for messages.

    Raises:
      FabricError: for a program that holds none, and names that cannot be or stand for something else.
    """
    prefix = read_tensor_name(prefix, "parameters=")
    convert = getattr(function, "__tapestry_arrow__", None)
    target: Any = function if convert is None else convert()
    holders = target.holders() if isinstance(target, Part) else []
    if not holders:
        remedy = "Leave parameters= out; of a plain module apply tp.lift(module, x), whose variables are inputs."
        details = ("expected a module of tp.nnx, or an arrow with arrays of its own", f"got {spelt(function)}")
        raise FabricError(message(f"{where}: the program holds no arrays that can be named", *details, remedy=remedy))
    graph = trace(function, *types)
    arrays = jax.tree.leaves([holder.held() for holder in holders])
    inputs = graph.inputs[: len(arrays)]
    names = tuple(read_tensor_name(f"{prefix}/{_path(node.name)}", "a parameter") for node in inputs)
    fresh = {
        name: (node.results[0], np.asarray(array))
        for name, node, array in zip(names, inputs, arrays, strict=True)
        if not _is_there(opened, name, node.results[0], np.asarray(array))
    }
    check_free(opened, list(fresh), overwrite, where)
    for name, (kind, array) in fresh.items():
        draft = write_draft(opened, name, kind_of(opened, kind), lambda box, array=array: array[(*slices(box), ...)])
        commit(opened, {name: draft}, overwrite, None, where)
    return graph, names


def _is_there(opened: Opened, name: str, kind: TensorType, array: np.ndarray[Any, Any]) -> bool:
    found = reads.current(opened.catalogue, name)
    if found is None or found.kind.type != kind:
        return False
    return read_now(opened, name, lambda now: whole(now.kind.type.shape)).tobytes() == array.tobytes()


def _path(name: str) -> str:
    """What an input of a graph is called, as part of a name: letters, digits, `_`, `-`, `.` and `/`."""
    return "/".join(filter(None, "".join(c if c.isalnum() or c in "_-." else "/" for c in name).split("/")))
