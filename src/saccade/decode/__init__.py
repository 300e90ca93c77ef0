"""Decoding: search over start / step / select, and the forced pass over a given output."""
