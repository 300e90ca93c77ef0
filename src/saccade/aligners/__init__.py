"""Word alignment by counting: which words of two languages occur together. It needs no model."""
