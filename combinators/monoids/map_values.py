"""One monoid under several names: dictionaries that merge value by value."""

from __future__ import annotations

from combinators.errors import GraphError, message
from combinators.merging.monoid import Monoid
from combinators.merging.product import struct


def map_values(monoid: Monoid, *keys: str) -> Monoid:
    """Make the monoid of dictionaries with given keys, whose values merge by `monoid`.

        (f + g)[key] = f[key] + g[key]

    It is `struct` of one monoid; for keys that are numbers, or many, see `function`.

    Args:
      monoid: merges the values of one key.
      keys: one name or more.

    Returns:
      A product; its `parts` are copies of `monoid`.

    Raises:
      GraphError: when there is no key, one comes twice, or one is no string.

    Laws: those of `monoid`, for every key.
    Source: Boykin et al. 2014 (Summingbird, Algebird): maps with values of a monoid are one.
    """
    if not keys or len(set(keys)) < len(keys) or not all(isinstance(key, str) for key in keys):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise GraphError(
            message(
                "monoids.map_values: the keys are no names.",
                "expected  one string or more, each once",
                f"got       {', '.join(map(repr, keys)) or 'nothing'}",
                remedy="Pass names, such as map_values(monoids.Sum, 'height', 'weight').",
            )
        )
    return struct(**dict.fromkeys(keys, monoid))
