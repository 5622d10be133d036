"""The sharded expression graph: a plan written out block by block, and what follows from the boxes alone.

Read `ranges` (one axis of a box, as an affine function of devices and turns), `parts` (the data), and `sharded_graph`
(what users call). From a schedule: `writing`. What has to hold: `proof`. The program again: `abstract`,
`compared` with a given one. A lowered program, held against it: `lowered`. Its
values, block by block: `run`, whose kernels are in `numeric`. Its price on a machine: `pricing`. For people:
`blocks_at` and `show`; as files: `json`, whose numbers `references` checks.
"""
