"""The inputs of a graph: leaves of arguments, and those of several layers as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from combinators.errors import GraphError, message
from combinators.frozen import dataclass
from combinators.index_space.tensor_type import TensorType
from tapestry_jax.lifting.callables.layers import stacked_label
from tapestry_jax.lifting.callables.names import Axes, Names


@dataclass(frozen=True)
class Input:
    """One input.

    Attributes:
      value: its number.
      label: its name.
      kind: its type.
      first: of layers that are stacked, the input of the first one; None for any other.
    """

    value: int
    label: str
    kind: TensorType
    first: Input | None = None

    @property
    def path(self) -> str:
        """Where it is written in the arguments."""
        return self.label if self.first is None else self.first.label

    def names(self, wanted: Names) -> Axes:
        """The names that its axes are given."""
        if self.first is None:
            return wanted.of(self.label, self.kind.shape)
        return (self.kind.names[0], *self.first.names(wanted))


def stacked_inputs(
    inputs: Sequence[Input], groups: Sequence[tuple[int, tuple[int, ...]]], in_tree: Any, over: str
) -> tuple[list[Input], Any]:
    """The inputs with one in the place of those of several layers, and the structure of arguments that has them.

    An argument with layers becomes a dictionary of arrays by path.

    Args:
      inputs: in the order of `in_tree`.
      groups: a new value, and those of the layers.
      in_tree: of a tuple of arguments.
      over: the name of the first axis.
    """
    known = {told.value: told for told in inputs}
    gone = {value for _, group in groups for value in group}
    made = [_stacked(value, [known[own] for own in group], over) for value, group in groups]
    found: list[Input] = []
    trees: list[Any] = []
    at = 0
    for tree in in_tree.children():
        own = list(inputs[at : at + tree.num_leaves])
        at += tree.num_leaves
        if any(told.value in gone for told in own):
            stacked = [told for told in made if told.first in own]
            listed = [*(told for told in own if told.value not in gone), *stacked]
            own, tree = jax.tree.flatten({told.label.partition("/")[2]: told for told in listed})
        found += own
        trees.append(tree)
    return found, jax.tree_util.treedef_tuple(trees)


def check_free_of(over: str, inputs: Sequence[Input], wanted: Names) -> None:
    """Refuse the name of another dimension for that of layers.

    Raises:
      GraphError: naming the input that has it.
    """
    for told in inputs:
        if over in (*told.kind.names, *told.names(wanted)):
            raise GraphError(
                message(
                    f"stack= of tp.lift calls layers `{over}`, and so an axis of `{told.label}` is called",
                    remedy='Call them otherwise: stack="depth".',
                )
            )


def no_layers(name: str, over: str) -> GraphError:
    """The error where nothing can be stacked."""
    return GraphError(
        message(
            f"stack={over!r} of tp.lift finds no equal layers in `{name}`",
            "layers are equal where they compute the same with parameters of the same types, one after the other, and "
            "nothing else reads what is inside of them",
            remedy="Lift without stack=.",
        )
    )


def _stacked(value: int, members: Sequence[Input], over: str) -> Input:
    label = stacked_label([told.label for told in members])
    assert label is not None
    first = members[0]
    kind = TensorType.make((over, *first.kind.names), (len(members), *first.kind.shape), first.kind.dtype)
    return Input(value, label, kind, first)
