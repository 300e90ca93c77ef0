"""Presets: model sizes and the demo, as TOML, for `extends`."""
