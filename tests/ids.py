"""Names of test cases that are the same in every process."""

from __future__ import annotations

import re


def stable_id(value: object) -> str:
    """The representation without memory addresses: test workers have to agree on what they collect."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
