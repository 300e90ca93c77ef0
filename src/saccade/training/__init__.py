"""Training: a training that is killed and resumed ends with the same bits as one that is not."""
