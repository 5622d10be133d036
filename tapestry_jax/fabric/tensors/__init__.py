"""What a tensor is, without its numbers. Read `records` (versions, blocks, operations), `boxes`, `casting`, `names`."""
