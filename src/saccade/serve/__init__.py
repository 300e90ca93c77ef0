"""The web service: translation models behind HTTP. Only `saccade serve` imports it; its dependencies are an extra."""
