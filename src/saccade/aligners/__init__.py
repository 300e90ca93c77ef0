"""Statistical word alignment of parallel text, learned from co-occurrence. It needs no neural model."""
