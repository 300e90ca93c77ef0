"""Data: reading, tokenising and batching. No model in sight."""
