"""Reading compiled programs: the scheduled HLO text of XLA for CPU, GPU and TPU.

Read in this order: `text`, `constants`, `trips`, `chains`, `overlap`, `collectives`, `cycles`.
"""
