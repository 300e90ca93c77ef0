"""Optimizers and schedules, by name."""
