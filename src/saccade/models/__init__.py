"""Models: parts joined to blocks, blocks to stacks, stacks to an encoder and a decoder."""
