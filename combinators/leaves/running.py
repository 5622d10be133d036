"""Running aggregates: the result at `t` aggregates everything up to `t`."""

from __future__ import annotations

from typing import Any

from combinators.aggregation.aggregator import Aggregator
from combinators.aggregation.inputs import check_operands
from combinators.arguments import read_optional_name
from combinators.errors import SignatureError, message, spelt
from combinators.index_space.signature import Signature, read_signature
from combinators.leaves.scan import Scan
from combinators.operations.cells import MapCells, cell_axes


def scan(
    aggregator: Aggregator,
    signature: str | Signature = "... t -> ... t",
    over: str = "t",
    *,
    init: Any = None,
    final: bool = False,
    reverse: bool = False,
    exclusive: bool = False,
    name: str | None = None,
) -> Scan:
    """Aggregate every prefix: `tp.scan(tp.aggregators.Moments(), "t col -> t col", over="t")`.

        y[t] = present(lift(x[0]) + ... + lift(x[t]))

    Of an aggregator that is `segmented` or `by_run` it is a segmented scan, over sharded dimensions as well: segments
    may begin and end anywhere.

    Args:
      aggregator: lift, monoid and presentation.
      signature: bare dimensions, all of them carried by the result; `[name]` are axes of one element.
      over: the scanned dimension.
      init: the state to begin with; see `Scan`.
      final: return the pair of the prefixes and the total.
      reverse: suffixes.
      exclusive: leave out the own step.
      name: for paths and errors.

    Returns:
      An arrow; its result has the tree that the aggregator presents.

    Raises:
      SignatureError: for windows, compositions, folded dimensions or several results.

    Laws: last of scan is fold; those of the aggregator.

    Example:
      >>> import jax.numpy as jnp
      >>> from combinators import aggregators
      >>> scan(aggregators.Mean())(jnp.array([1.0, 3.0, 5.0])).tolist()
      [1.0, 2.0, 3.0]
      >>> by_day = scan(aggregators.Sum().by_run(), "t, t -> t")
      >>> by_day(jnp.array([1, 2, 3, 4]), jnp.array([7, 7, 8, 8])).tolist()
      [1, 3, 3, 7]
    """
    check_aggregator(aggregator, "tp.scan")
    called = read_optional_name(name, "name= of tp.scan")
    parsed, called = read_signature(signature), called or f"scan_{aggregator.name or 'aggregate'}".replace(" ", "_")
    named = aggregator.name or "aggregator"
    check_operands("tp.scan", named, aggregator.lift, aggregator.lift, parsed)
    operands, mapped = cell_axes(parsed, "tp.scan")
    return Scan(
        aggregator.monoid,
        parsed,
        over,
        kernel=MapCells(aggregator.lift, operands, mapped),
        present=aggregator.present,
        init=init,
        final=final,
        reverse=reverse,
        exclusive=exclusive,
        name=called,
    )


def check_aggregator(aggregator: Any, where: str) -> None:
    """Refuse what is no aggregator.

    Raises:
      SignatureError: always then.
    """
    if not isinstance(aggregator, Aggregator):
        raise SignatureError(
            message(
                f"{where} takes an aggregator",
                f"got {type(aggregator).__name__}: {spelt(aggregator, 60)}",
                remedy="Pass one of tp.aggregators, such as tp.aggregators.Moments().",
            )
        )
