"""Holding a lowered program against blocks: specs, collectives and loops are read from its jaxpr; nothing is run.

Read `sent` (what the jaxpr says), `layout` (which coordinates move which axis) and `against` (what has to agree);
then `moved` for moves and `merged` for folds and scans. `cells` follows single cells, by what `made_of` says of
equations; `exact` what they come to, by what equations are `in_fields`, in numbers of `residues`, and `in_floats` where
a law holds of real numbers alone.
"""
