"""What a pipeline over the layers of a stack cannot do: refused where it is placed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from combinators.errors import PlanError, message
from combinators.graphs.nodes import Loop
from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.geometry.mesh_shape import MeshShape


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


def no_microbatches(node: Loop, path: str, stopped: Sequence[str] = ()) -> PlanError:
    """The error for stages through which nothing flows chunk by chunk; `stopped`: what stops chunks."""
    if not node.carries:
        return PlanError(
            message(
                f"the plan places `{node.over}`, whose {node.length} turns of `{path}` are written as a loop",
                "turns hand nothing on, so they are no stages of a pipeline; a loop takes them one after the other",
                remedy=f"Lift with maps=True, or write jax.vmap for it, and `{node.over}` goes where others go.",
            )
        )
    carried = ", ".join(f"`{kind}`" for kind in node.results[: node.carries])
    take = 'Take such a dimension in chunks, as in {"batch": tp.chunks(8)}'
    keep = "Let every operation inside pass the chunks of one dimension on"
    return PlanError(
        message(
            f"the plan places `{node.over}`, whose {node.length} turns of `{path}` follow one another: no chunks flow",
            f"what a turn hands on: {carried}",
            "turns are stages of a pipeline where each keeps a dimension that the plan takes in chunks",
            *stopped[:4],
            remedy=f"{keep if stopped else take}, or leave `{node.over}` out.",
        )
    )


def turns_in_loops(node: Loop, path: str, items: Sequence[object]) -> PlanError:
    """The error for turns that are placed in chunks, rings or halos."""
    return PlanError(
        message(
            f"the plan takes `{node.over}`, whose {node.length} turns of `{path}` follow one another, in loops",
            f"got ({', '.join(map(str, items))})",
            "turns are taken one at a time as it is; on mesh axes they are stages of a pipeline",
            remedy=f'Name mesh axes alone, as in {{"{node.over}": "stage"}}, or leave `{node.over}` out.',
        )
    )
