"""Tasks: what a batch means, its loss, its measures."""
