"""Decoding: greedy search, sampling and beam search, and the engines that run them on a model."""
