"""Machines that are not here: meshes of compile-only devices, and what XLA's production compilers say of a plan for them.

Read in this order: `known`, `tpu`, `cuda`, `topology`, `memory`, `seen`, `compile_only`.
"""
