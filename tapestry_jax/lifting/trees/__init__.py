"""Scans by an associative function, which JAX writes as trees of equations: found, and proved to be one.

Read `prefixes`, which puts one equation in the place of them all, then `merged`, the proof, and `alike`.
"""
