"""What a plan says in the words of plain JAX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jax.sharding import PartitionSpec

from combinators.frozen import dataclass

Names = tuple[str | None, ...]
"""The logical name of every axis of a tensor; None for one that is whole."""

Rules = tuple[tuple[str, str | tuple[str, ...] | None], ...]
"""Logical name and mesh axes, every name once."""


@dataclass(frozen=True)
class Unsaid:
    """Something that a plan does and no `PartitionSpec` says.

    Attributes:
      kind: `chunks`, `ring`, `stripes`, `stages`, `halo`, `remat`, `accumulate` or `padding`.
      path: of the operation, loop, argument or result.
      what: in words.
    """

    kind: str
    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind} at {self.path}: {self.what}"


@dataclass(frozen=True)
class PartitionSpecs:
    """A plan as shardings, for a function that is jitted by `jax.jit` and partitioned by XLA. `print` shows it.

    Attributes:
      inputs: `PartitionSpec`s in the structure of the arguments, one for every array; of a module its state.
      outputs: `PartitionSpec`s in the structure of the result.
      values: for each operation, by its path, how what it makes lies: for `jax.lax.with_sharding_constraint`, where XLA
        would choose otherwise. Several results of one operation are called `path/0`, `path/1`.
      names: for each argument and result, by its name, the logical names of its axes: for `nnx.with_partitioning` and
        `nn.with_logical_partitioning`.
      rules: for each logical name its mesh axes, as Flax takes them: `nnx.logical_axis_rules`, `nn.logical_axis_rules`.
      unsaid: what the plan does beside this.
    """

    inputs: tuple[Any, ...]
    outputs: Any
    values: Mapping[str, PartitionSpec]
    names: Mapping[str, Names]
    rules: Rules
    unsaid: tuple[Unsaid, ...]

    def __str__(self) -> str:
        over = {name: "whole" if axes is None else _said(axes) for name, axes in self.rules}
        told = [f"{name}: {' '.join(axis or '_' for axis in axes)}" for name, axes in self.names.items()]
        rules = [f"{name}: {axes}" for name, axes in over.items()]
        unsaid = [str(each) for each in self.unsaid] or ["nothing"]
        parts = {"logical axes": told, "rules": rules, "no PartitionSpec says": unsaid}
        return "\n".join(
            line for head, lines in parts.items() for line in (f"{head}:", *(f"  {line}" for line in lines))
        )


def _said(axes: str | tuple[str, ...]) -> str:
    return axes if isinstance(axes, str) else "+".join(axes)
