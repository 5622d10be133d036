"""Programs on tensors by name. Read `program` (graphs and plans), `applying`, then `recovering` (lost blocks again)."""
