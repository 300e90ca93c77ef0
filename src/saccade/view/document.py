"""One offline HTML file, with our own style and script inside; it asks nothing of the network and trusts no text."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

# Inside a script element only these could end it early or be read as markup; JSON allows them as escapes.
UNSAFE_IN_SCRIPT = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})

IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w-]+\.js)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export ", re.MULTILINE)


def document(
    template: str,
    entry: str,
    styles: Sequence[str],
    title: str,
    data: Mapping[str, Any],
    parts: Mapping[str, str] | None = None,
) -> bytes:
    """A template of `web/` with its $title, $policy, $style, $script and $data filled in, and `parts`, which must be
    safe HTML already."""
    style, script = "".join(map(_asset, styles)), joined(entry)
    text = Template(_asset(template)).substitute(
        parts or {},
        policy=_policy(style, script),
        title=html.escape(title),
        style=style,
        script=script,
        data=_embedded(data),
    )
    # A lone surrogate cannot be written as UTF-8; a question mark in the title is better than no page.
    return text.encode("utf-8", errors="replace")


def joined(entry: str) -> str:
    """A module of `web/` and all it imports as one script, each after what it needs: a page without a server cannot
    import. So names at the top of our modules are unique, and an import never renames."""
    modules: dict[str, str] = {}

    def visit(name: str) -> None:
        if name in modules:
            return
        text = _asset(name)
        for needed in IMPORT.findall(text):
            visit(needed)
        modules[name] = EXPORT.sub("", IMPORT.sub("", text))

    visit(entry)
    return "".join(modules.values())


def write_whole(path: Path, content: bytes) -> None:
    """A reader sees the old page or the new one, never half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        unfinished.write_bytes(content)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def _asset(name: str) -> str:
    return files("saccade.view").joinpath("web", name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """Only our own style and script may act: no network, no inline handlers, nothing from the data."""
    return (
        f"default-src 'none'; style-src '{_fingerprint(style)}'; script-src '{_fingerprint(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _fingerprint(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


def _embedded(value: Mapping[str, Any]) -> str:
    """JSON that stays data inside a script element, whatever the sentences say."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).translate(UNSAFE_IN_SCRIPT)
