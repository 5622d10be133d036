"""Processes that work on one fabric: started by a process that has imported everything, and killed at any moment.

`python nursery.py FOLDER` reads seeds from its input; for each it starts a worker, which works until it is killed, and
prints its number. Importing JAX takes seconds, forking a process in which no device was looked at takes none.
"""

from __future__ import annotations

import os
import random
import sys
import traceback

import numpy as np

import tapestry_jax as tp
from tapestry_jax.fabric import fabric as _fabric  # imported before the forks

ROWS, COLUMNS = 6, 8
X = tp.TensorType({"row": ROWS, "col": COLUMNS}, np.int32)
CHUNKS = (4, 3)  # a row lies in three blocks, a column in two


def work(folder: str, seed: int) -> None:
    """Random operations until the end. Whatever others do, every row of `x` and `y` holds one number, and no zero."""
    draw = random.Random(seed)
    programs, parent = seed % 5 == 4, os.getppid()
    with _fabric.Fabric(folder) as fabric:
        graph = tp.trace(pair, X)
        while os.getppid() == parent:
            one, two = draw.choice(("x", "y")), draw.choice(("x", "y"))
            rows = [draw.randrange(ROWS) for _ in range(2)]
            at, to = ({"row": slice(row, row + 1)} for row in rows)
            try:
                match draw.randrange(6 if programs else 5):
                    case 0 | 1:
                        fabric.copy(one, at, two, to)
                    case 2:
                        fabric.write(one, np.full((1, COLUMNS), draw.randrange(1, 1000), np.int32), at)
                    case 3:
                        fabric.allocate("temporary", X, overwrite=True)
                        fabric.copy(one, None, "temporary", None)
                        fabric.delete("temporary")
                    case 4:
                        found = fabric.read(one)
                        assert (found == found[:, :1]).all() and found.all(), found
                    case _:
                        fabric.apply(graph, one, out=("more", "less"), overwrite=True)
            except tp.FabricError as error:
                # Another process took it away, which is no fault.
                if "temporary" not in str(error) and "is in use" not in str(error):
                    raise


def pair(x):
    """Two results that belong together."""
    return x + 1, x - 1


def main(folder: str) -> None:
    """Start a worker for every line."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                work(folder, int(line))
            except BaseException:  # noqa: BLE001, told and ended, whatever it is
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
