"""The service: translators behind an address. Imported by `saccade serve` alone; its libraries are an extra."""
