"""Word alignments: read from attention, learned by counting, and both directions made one."""
