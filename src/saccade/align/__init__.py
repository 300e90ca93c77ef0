"""Word alignments, read from attention."""
