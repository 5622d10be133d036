"""Layers that contract dimensions with a kernel, or look rows of one up.

Read `linear` and `einsum`, then `mlp`, made of them, and `embed`.
"""
