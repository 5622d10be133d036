"""The text of the demo: Python's own standard library, its windows, and what counting alone predicts."""

from __future__ import annotations

import hashlib
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import tapestry_jax as tp

SYMBOLS = 256
_SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idle_test"}


@dataclass(frozen=True)
class Text:
    """Bytes to train on, and bytes held out.

    Attributes:
      files: how many source files were read.
      train: uint8 `(n,)`, the first nine tenths of all bytes.
      held_out: uint8 `(m,)`, the rest.
    """

    files: int
    train: np.ndarray
    held_out: np.ndarray

    @property
    def fingerprint(self) -> str:
        """Tells this text from that of another Python."""
        return hashlib.sha256(self.train.tobytes() + self.held_out.tobytes()).hexdigest()[:16]


def standard_library() -> Text:
    """Read the `.py` files of the standard library in the order of their paths, without its tests.

    Raises:
      SystemExit: when this Python comes without sources.
    """
    root = Path(sysconfig.get_paths()["stdlib"])
    inside = ((path.relative_to(root), path) for path in root.rglob("*.py"))
    chosen = sorted((inner.as_posix(), path) for inner, path in inside if not _SKIPPED & set(inner.parts))
    data = np.frombuffer(b"".join(path.read_bytes() for _, path in chosen), np.uint8)
    if data.size < 100_000:
        raise SystemExit(
            f"error: {root} holds {data.size} bytes of Python source, too little to learn from\n"
            "  Run the demo with a Python that has the sources of its standard library."
        )
    cut = data.size * 9 // 10
    return Text(len(chosen), data[:cut], data[cut:])


def training_batch(data: np.ndarray, batch: int, length: int, seed: int, step: int) -> tuple[np.ndarray, np.ndarray]:
    """The batch of one step, a function of seed and step alone: a resumed run sees what an uninterrupted one sees.

    Returns:
      Tokens and targets, int32 `(batch, length)`; a target is the byte after its token.
    """
    starts = np.random.default_rng((seed, step)).integers(0, data.size - length, batch)
    rows = _rows(data, starts, length + 1)
    return rows[:, :-1], rows[:, 1:]


def held_out_rows(data: np.ndarray, batch: int, length: int, count: int) -> np.ndarray:
    """Up to `count` batches of rows spread evenly over the data, as many as fit without overlap.

    Returns:
      int32 `(batches, batch, length + 2)`: a row starts with one more byte, which a trigram needs before the first
      target, so that model and tables are asked for the same bytes.
    """
    count = max(1, min(count, data.size // (batch * (length + 2))))
    starts = np.linspace(0, data.size - length - 2, count * batch).astype(np.int64)
    return _rows(data, starts, length + 2).reshape(count, batch, length + 2)


def held_out_batches(data: np.ndarray, batch: int, length: int, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The same rows as tokens and targets."""
    return [(row[:, 1:-1], row[:, 2:]) for row in held_out_rows(data, batch, length, count)]


def _rows(data: np.ndarray, starts: np.ndarray, length: int) -> np.ndarray:
    return data[starts[:, None] + np.arange(length)].astype(np.int32)


def count_pairs(first: Any, second: Any) -> Any:
    """The bigram table of a block of positions: int32 `(256, 256)`."""
    return jnp.zeros((SYMBOLS, SYMBOLS), jnp.int32).at[first, second].add(1)


bigrams = tp.Reduce(
    count_pairs,
    "position, position -> [first] [second]",
    tp.monoids.Sum,
    sizes={"first": SYMBOLS, "second": SYMBOLS},
)


@dataclass(frozen=True)
class Tables:
    """What the last one or two bytes say about the next one, counted on the training text.

    Attributes:
      pairs: `(256, 256)` counts.
      triples: `(65536, 256)` counts, by the two bytes before.
    """

    pairs: np.ndarray
    triples: np.ndarray

    @staticmethod
    def count(data: np.ndarray, mesh: Any) -> Tables:
        """Count pairs as a fold over positions, every device its part of the text; triples with NumPy."""
        position = tp.TensorType({"position": data.size - 1}, jnp.uint8)
        plan = tp.plan(tp.trace(bigrams, position, position), mesh, {"position": tuple(mesh.axis_names)})
        pairs = np.asarray(plan.compile()(*plan.put(data[:-1], data[1:])))
        wide = data.astype(np.int32)
        triples = np.bincount((wide[:-2] * SYMBOLS + wide[1:-1]) * SYMBOLS + wide[2:], minlength=SYMBOLS**3)
        return Tables(pairs, triples.reshape(SYMBOLS**2, SYMBOLS))

    def bigram_loss(self, rows: np.ndarray) -> float:
        """Nats per byte of the add-one estimate; rows of consecutive bytes, from the third of each on."""
        return float(-np.log(self._after_one(rows[..., 1:-1], rows[..., 2:])).mean())

    def trigram_loss(self, rows: np.ndarray) -> float:
        """Nats per byte of triples interpolated with pairs, whose estimate counts as 16 triples more."""
        before, wanted = rows[..., :-2] * SYMBOLS + rows[..., 1:-1], rows[..., 2:]
        backed = 16 * self._after_one(rows[..., 1:-1], wanted)
        return float(-np.log((self.triples[before, wanted] + backed) / (self.triples.sum(1)[before] + 16)).mean())

    def _after_one(self, before: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        return (self.pairs[before, wanted] + 1) / (self.pairs.sum(1)[before] + SYMBOLS)
