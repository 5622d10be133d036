"""What has to hold of a sharded graph, decided from its boxes: no layout, no schedule and no plan is looked at.

Read `prove`, then `site` (what has been made so far) and `axes` (one axis at a time); then `blocks`, `moves` and
`loops`.
"""
