"""Coordinates as tensors."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from combinators.arguments import read_name
from combinators.errors import GraphError, message
from combinators.frozen import dataclass
from combinators.index_space.signature import Signature
from combinators.index_space.tensor_type import TensorType
from combinators.operations.operation import Operation
from combinators.recording.current import current_trace, trace_of
from combinators.recording.value import Value


@dataclass(frozen=True)
class Coordinates:
    """The coordinates of a block along one dimension."""

    def __call__(self, at: Any) -> Any:
        """The vector itself."""
        return at


def index(name: str, like: Any) -> Any:
    """The tensor of coordinates along the axis `name` of `like`: `0, 1, ..., n - 1`, int32.

    Args:
      name: an axis of `like`.
      like: a value of the program, or a `tp.TensorType`; or an array, whose `name` is then the position of an axis as
        text.

    Returns:
      Shape `(n,)`, one axis called `name`.

    Raises:
      GraphError: when `like` has no such axis.
    """
    name = read_name(name, "the name in tp.index")
    if isinstance(like, TensorType) and name in like.names:
        size = like.shape[like.names.index(name)]
        if (program := current_trace()) is None:
            return jnp.arange(size, dtype=jnp.int32)
        return program.apply(_operation(name, size), [])
    if not isinstance(like, Value):
        if name.isdigit() and int(name) < jnp.ndim(like):
            return jnp.arange(jnp.shape(like)[int(name)], dtype=jnp.int32)
        raise GraphError(
            message(
                f"an array has no axis named {name!r}",
                f"got shape {jnp.shape(like)}",
                remedy="Call tp.index inside a program, where axes have names.",
            )
        )
    size = like.shape[like.settle({name}).axis(name)]
    return trace_of([like], "index").apply(_operation(name, size), [])


def _operation(name: str, size: int) -> Operation:
    return Operation(Signature.parse(f"@{name} -> {name}"), Coordinates(), sizes=((name, size),), name="index")
