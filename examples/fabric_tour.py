"""The fabric: named tensors in a folder, programs on them by name, and blocks that are lost and computed again."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

import tapestry_jax as tp

ROWS, COLUMNS = 4096, 256


def standardise(x: Any) -> Any:
    """Rows with mean 0 and variance 1 in every column, and the mean."""
    moments = tp.fold(tp.aggregators.Moments(), "row col -> col")(x)
    return (x - moments["mean"]) * (moments["variance"] + 1e-6) ** -0.5, moments["mean"]


def tour(folder: Path) -> None:
    """Load, copy, apply, lose, recover, export."""
    rows = np.random.default_rng(0).normal(3.0, 2.0, (ROWS, COLUMNS)).astype(np.float32)
    np.save(folder / "x.npy", rows)
    with tp.Fabric(folder / "fabric", mesh=tp.mesh(data=jax.device_count())) as fabric:
        fabric.load("x", folder / "x.npy", names=("row", "col"), layout={"row": "data"})
        fabric.allocate("both", tp.TensorType({"row": 2 * ROWS, "col": COLUMNS}), chunks=(512, COLUMNS))
        fabric.copy("x", None, "both", {"row": slice(0, ROWS)})
        fabric.copy("x", None, "both", {"row": slice(ROWS, None)})
        # A piece of 1,024 rows at a time: neither `both` nor `y` has to fit into memory.
        fabric.apply(standardise, "both", out=("y", "mean"), over={"row": tp.chunks(size=1024)})
        for name in fabric:
            print(fabric.describe(name))
        y = fabric.read("y")
        print(f"columns of y have means below {abs(y.mean(0)).max():.0e} and variances near {y.var(0).mean():.4f}")

        lost = next((folder / "fabric" / "blocks").glob("*/[0-9]*"))
        lost.write_bytes(lost.read_bytes()[:-1])
        damaged = [name for name in fabric if fabric.check(name)]
        print(f"a block of {', '.join(damaged)} was damaged; recovered: {[fabric.recover(name) for name in damaged]}")
        assert not any(fabric.check(name) for name in fabric)

        fabric.export("y", folder / "y.zarr")
        print(f"exported {sum(path.stat().st_size for path in (folder / 'y.zarr').rglob('*') if path.is_file()):,} B")


def main() -> None:
    """Run the tour in a folder of its own, or in the one that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="a folder that is empty; by default one that is removed")
    given = parser.parse_args().folder
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        tour(given)
        return
    with tempfile.TemporaryDirectory() as folder:
        tour(Path(folder))


if __name__ == "__main__":
    main()
