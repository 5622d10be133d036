"""The ten programs in JAX, Flax and Optax alone, on the same meshes."""
