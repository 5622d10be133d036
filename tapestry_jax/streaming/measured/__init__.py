"""What a run measures, and what is shown of it.

`metrics` counts bytes, time, waiting and depth of every stage; `progress` is the bar.
"""
