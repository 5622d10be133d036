"""What repeats in a model, and the models that are rows of it.

Read `residual`, the block of transformers, and `stack`, blocks as one loop; `repeated` makes and runs blocks one by
one or as a stack. Then `language_model`, which is around them, and `transformer`, the plainest of these; `with_cache`
makes them decode.
"""
