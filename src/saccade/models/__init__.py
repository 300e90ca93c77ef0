"""Models: parts form blocks, blocks form stacks, stacks form encoders and decoders."""
