"""Training pairs that are encoded once, on all cores, into memory-mapped arrays in a cache."""
