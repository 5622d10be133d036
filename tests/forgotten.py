"""What tests say is forgotten, without looking at all there is.

In a worker that has run thousands of tests the collector takes seconds to look at everything, and a test of what is
forgotten asks it several times.
"""

from __future__ import annotations

import gc
from collections.abc import Callable


def is_forgotten(run: Callable[[], bool]) -> bool:
    """Run what makes objects, forgets them and calls `gc.collect()`, and say whether it found that nothing is left.

    At first the collector looks at what is made meanwhile alone. Objects from before may hold some of it (a cache that
    is let go only now), so that what was found to be left is looked at again, among all there is.
    """
    gc.freeze()
    try:
        if run():
            return True
    finally:
        gc.unfreeze()
    gc.collect()
    return run()
