"""Loops: chunks in time, pipelines, scans along cut dimensions, and what they carry.

Read `region` with `carried`, `accumulate` and `still`, then `framed`, `summed` with `presented` and `held`, and
`pipeline`; `scan` with `scan_block` and `prefixes`; `regather`, and `once` with `transposed` stand alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tapestry_jax.lowering.time.pipeline import run_pipeline as run_pipeline
else:
    from combinators.lazy import lazily

    # Few programs have stages.
    __getattr__, __dir__ = lazily(__name__, {"run_pipeline": "tapestry_jax.lowering.time.pipeline:run_pipeline"})
