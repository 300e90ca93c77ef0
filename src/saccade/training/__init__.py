"""Training. A run that is killed and resumed ends with the same weights, bit by bit, as one that is not."""
