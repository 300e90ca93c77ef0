"""Runs: the folder that a training writes and all other commands read. `evaluate` and `report` also read the data files
of the recipe; exports, the stored evaluation and alignment settings are written into the folder."""
