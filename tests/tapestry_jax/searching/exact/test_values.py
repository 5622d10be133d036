"""Values that are alike cost as often as they are there, and what is paid once for all stays."""

from __future__ import annotations

from dataclasses import replace

from tapestry_jax.searching.exact.model import Value
from tapestry_jax.searching.exact.values import times_alike

ONE = Value(
    maker=2,
    labels=(0, 1),
    readers=(),
    seconds={(0, 0): 1.0, (0, 1): 0.5},
    common=(2.0,),
    shares={(0, 0): (0,)},
    saved={(0, 1): (3.0, 4.0)},
    kept={(0, 0): 0},
    sizes=(5.0,),
    behind={(0, 0): ((1, 6.0),)},
    together={(0, 0): ("a gather",)},
)


def test_seconds_and_bytes_of_values_that_are_alike_are_added() -> None:
    assert times_alike(ONE, 1) == ONE
    assert times_alike(ONE, 3) == replace(
        ONE,
        seconds={(0, 0): 3.0, (0, 1): 1.5},
        common=(6.0,),
        saved={(0, 1): (9.0, 12.0)},
        sizes=(15.0,),
        behind={(0, 0): ((1, 18.0),)},
    )
