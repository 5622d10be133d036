"""Published weights: what files in the naming of Hugging Face hold, and the parameters that become of them.

Read `weights`, files as data; `hugging_face`, what a configuration says and where a parameter comes from; `named_llama`
and `named_gpt`, how tensors are called; and `model`, what models share that are made of them.
"""
