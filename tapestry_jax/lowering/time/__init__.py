"""Loops: chunks in time, pipelines, scans along cut dimensions, and what they carry.

Read `region` with `accumulate` and `still`, then `framed`, `summed` with `held`, and `pipeline`; `scan` and
`regather` stand alone.
"""
