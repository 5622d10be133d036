"""`tp.lift` on models that others wrote, as their packages on PyPI have them: `python -m benchmarks lifted --write`.

Read `entry`, one of the groups (`hugging_face`, `flax_models`, ...), `registry`, `measured`, `measure`, `kept`, `page`.
"""
