"""Measures: how good an output is."""
