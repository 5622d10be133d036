"""One program, five embeddings: on one device, on the mesh, block by block, as a stream, and on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from laws.equivalent import checked_plan, read_plan
from laws.verdicts.outcome import Report

EMBEDDINGS = ("plan.blocks", "plan.values", "plan.streamed", "plan.clustered")
"""What `assert_embeddings` checks, each against the program on one device."""


def assert_embeddings(
    plan: Any, args: Sequence[Any] | None = None, seed: int = 0, *, engine: Any = None, name: str | None = None
) -> Report:
    """Check that one program gives the same wherever it runs.

    Against the program as it is, on one device, stand the plan on its mesh, its blocks one by one in NumPy, the stream
    of its chunks, turned by the host, and the same chunks on the workers of a cluster. What a plan cannot be is not
    checked, and the report says why: without chunks there is no stream, and without `engine=` no cluster.

    Args:
      plan: of `tp.plan`, with a dimension in `tp.chunks` for streams.
      args: the arguments of the program, to use instead of drawn ones; drawn integers are 0 to 3.
      seed: of the draws.
      engine: a client of `dask.distributed`, or "dask", as `tp.stream` takes it. Workers have one device each, and take
        the chunks of the plan alone. A client is quicker: "dask" starts a cluster for each of three arguments.
      name: what messages call the plan.

    Returns:
      A report, as of `assert_lawful`.

    Raises:
      LawError: with the arguments, and the first entry that differs by more than rounding; when every result was
        infinite or NaN; or when an option cannot be used.

    Example:
      >>> import tapestry_jax as tp
      >>> total = tp.trace(tp.fold(tp.aggregators.Sum(), "row c -> c"), tp.TensorType((6, 2)))
      >>> plan = tp.plan(total, tp.mesh(data=1), {"row": tp.chunks(size=2)})
      >>> assert_embeddings(plan).held
      ('plan.blocks', 'plan.values', 'plan.streamed')
    """
    subject, seed = read_plan("laws.assert_embeddings", plan, args, seed, name, engine)
    return checked_plan(subject, EMBEDDINGS, {}, seed)
