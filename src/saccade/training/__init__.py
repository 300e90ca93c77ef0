"""Training: one loop, readable from top to bottom, that ends with the same bits however often it was killed."""
