"""What a pipeline over the layers of a stack cannot do: refused where it is placed."""

from __future__ import annotations

from collections.abc import Iterable

from combinators.errors import PlanError, message
from combinators.graph import Loop
from tapestry_jax.planning.layout import Cut
from tapestry_jax.planning.mesh_shape import MeshShape


def check_stages(node: Loop, path: str, cut: Cut, mesh: MeshShape, inside: Iterable[tuple[str, str, Cut]]) -> None:
    """Refuse stages without a layer, and layers that use the mesh axis of the stages themselves.

    Args:
      node: the repetition.
      path: of the repetition.
      cut: of its layers.
      mesh: the shape of the mesh.
      inside: path, name and cut of every dimension that the layers cut.

    Raises:
      PlanError: naming the layers and the mesh axis.
    """
    stages, over = mesh.size(cut.axes), node.over
    if cut.block * (stages - 1) >= node.length:
        raise PlanError(
            message(
                f"the plan divides {node.length} layers of `{path}` among {stages} stages, some of which stay empty",
                f"a stage takes {cut.block} layers, so that {-(-node.length // cut.block)} stages hold all of them",
                remedy=f"Place `{over}` on a mesh axis of {-(-node.length // cut.block)} devices.",
            )
        )
    for operation, name, other in inside:
        shared = [axis for axis in other.axes if axis in cut.axes]
        if shared:
            raise PlanError(
                message(
                    f"`{operation}` has both `{over}` and `{name}` on the mesh axis `{shared[0]}`",
                    f"the layers of `{path}` are stages of a pipeline along it",
                    remedy=f'Except one of them: ops={{"{operation}": {{"{name}": None}}}}.',
                )
            )


def no_microbatches(node: Loop, path: str) -> PlanError:
    """The error for stages through which nothing flows chunk by chunk."""
    carried = ", ".join(f"`{kind}`" for kind in node.results[: node.carries])
    return PlanError(
        message(
            f"the plan places `{node.over}`, whose {node.length} turns of `{path}` follow one another: no chunks flow",
            f"what a turn hands on: {carried}",
            "turns are stages of a pipeline where each keeps a dimension that the plan takes in chunks",
            remedy=f'Take such a dimension in chunks, as in {{"batch": tp.chunks(8)}}, or leave `{node.over}` out.',
        )
    )
