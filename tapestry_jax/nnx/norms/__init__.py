"""Normalisation: what is scaled to mean 0 and variance 1.

Read `layer_norm`.
"""
