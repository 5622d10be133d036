"""What the library costs beside plain JAX, measured side by side: `python -m benchmarks`."""
