"""Visualizing attention and training: attention maps, the offline HTML pages, and a heat map for the terminal."""
