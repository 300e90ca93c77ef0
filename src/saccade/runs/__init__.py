"""Runs: the directory that a training writes. Evaluation, translation, serving and export read only this directory."""
