"""Layers that contract dimensions with a kernel, or look rows of one up.

Read `linear` and `einsum`, then what is made of them, `mlp`, `gated` and `lora`, and `embed`.
"""
