"""Machines that are not here: meshes of compile-only devices, and what XLA's compilers say of a plan.

Read in this order: `known`, `tpu`, `cuda`, `missing`, `topology`, `seen`, `compile_only`.
"""
