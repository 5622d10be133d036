"""The ten programs with this library: `run()` computes what the file of the same name in `plain` computes."""
