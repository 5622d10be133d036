"""Normalisation: what is scaled to mean 0 and variance 1.

Read `statistics`, which are folds, and `scaled`, by them; then `layer`, `group` and `batch`.
"""
