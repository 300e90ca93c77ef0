"""Data: reading, tokenizing and batching. Nothing here depends on a model."""
