"""Decoding: search over start / step / select, and the one way to call a model."""
