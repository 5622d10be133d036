"""Every model of the page, in the order of its groups."""

from __future__ import annotations

from benchmarks.lifted import equinox_models, flax_models, haiku_models, hugging_face, sciences
from benchmarks.lifted.entry import Entry

GROUPS: dict[str, tuple[Entry, ...]] = {
    "Flax: transformers and diffusers": hugging_face.ENTRIES,
    "Flax, new and old": flax_models.ENTRIES,
    "Equinox": equinox_models.ENTRIES,
    "Haiku and jraph": haiku_models.ENTRIES,
    "Physics, solvers and statistics": sciences.ENTRIES,
}
"""Their packages are imported by what makes a model, so that reading the list needs none."""

ENTRIES = tuple(entry for entries in GROUPS.values() for entry in entries)
