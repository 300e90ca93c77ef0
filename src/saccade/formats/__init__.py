"""Export and import of models, one module per format, and engines that run the exported models."""
