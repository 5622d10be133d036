"""Training: a loss under a plan, its gradients and an optimizer's update as one program.

Read `trainer`, what users make, with `options`; then `program` (the loss of a plan, for batches of all sizes),
`microbatches`, `results` (what a loss returns) and `step` (what one program computes), with `precision`,
`scaling` and `finite`;
`state`, `begun` and `places`, what lies where; `fitting` and `metrics`, the loop and what it adds up. `errors` is what
goes wrong.
"""
