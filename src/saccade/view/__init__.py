"""Showing attention: the maps themselves, the offline page and the terminal."""
