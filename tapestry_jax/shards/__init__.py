"""The sharded expression graph: a plan written out block by block, and what follows from the boxes alone.

Read `ranges` (one axis of a box, as an affine function of devices and turns), `parts` (the data), and `sharded_graph`
(what users call). From a schedule: `written`, with `layouts`, `reading`, `matched` and `tables`. What has to hold:
`proof`. The program again: `abstract`, `compared` with a given one. For people: `blocks_at` and `show`; as files:
`json`, whose numbers `references` checks.
"""
