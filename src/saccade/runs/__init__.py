"""Runs: a directory that holds everything about one training, and is all that passes from training to what follows."""
