"""What streams raise is caught as every error of the library is."""

from __future__ import annotations

import tapestry_jax as tp
from tapestry_jax.streaming.errors import StreamError


def test_a_stream_that_cannot_run_is_an_error_of_the_library():
    assert issubclass(StreamError, tp.TapestryError) and not issubclass(StreamError, tp.FormatError)
