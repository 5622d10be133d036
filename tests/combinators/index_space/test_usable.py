"""Arguments that a program cannot run on."""

from __future__ import annotations

import numpy as np
import pytest

from combinators.errors import GraphError
from combinators.index_space.usable import check_usable


def test_bytes_in_the_other_order_are_refused_in_words() -> None:
    array = np.arange(3, dtype=np.float32)
    check_usable(["x"], [array], "f")
    turned = array.astype(array.dtype.newbyteorder())
    with pytest.raises(GraphError, match="`x` has its bytes in an order that JAX does not take"):
        check_usable(["x"], [turned], "f")
    check_usable(["x"], [turned.astype(turned.dtype.newbyteorder("="))], "f")
