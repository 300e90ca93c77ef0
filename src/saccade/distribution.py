"""The name of the distribution on the Python package index. The import name is `saccade`; on the index, that name
belongs to another project."""

DISTRIBUTION = "saccade-attention"


def install_command(extra: str) -> str:
    """The command that installs an optional extra, for error messages."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
