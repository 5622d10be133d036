"""What users ask of a search, read; and what was answered before.

Read `read`, then `arguments` and `meshes` (how devices may be laid out); `kept` are plans found before, in files.
"""
