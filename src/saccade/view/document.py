"""HTML documents in one file, with style sheet and script inline. They load nothing from the network, and text from
the data is never executed as markup or script."""

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

# The characters that could end a script element early or start markup in it. JSON allows them as escapes.
UNSAFE_IN_SCRIPT = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})

IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w-]+\.js)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export ", re.MULTILINE)


def html_document(
    template: str,
    entry: str,
    styles: Sequence[str],
    title: str,
    data: Mapping[str, Any],
    fragments: Mapping[str, str] | None = None,
) -> bytes:
    """Fill in $title, $policy, $style, $script and $data of a template in `web/`, and `fragments`: further
    placeholders with values that are already safe HTML."""
    style, script = "".join(map(_asset, styles)), bundle(entry)
    text = Template(_asset(template)).substitute(
        fragments or {},
        policy=_content_security_policy(style, script),
        title=html.escape(title),
        style=style,
        script=script,
        data=_script_safe_json(data),
    )
    return text.encode("utf-8", errors="replace")  # a lone surrogate in the title becomes a question mark


def bundle(entry: str) -> str:
    """Concatenate a module of `web/` and all its imports, each after the modules it needs, because a page opened from
    a file cannot import modules. Top-level names must therefore be unique, and an import must not rename."""
    modules: dict[str, str] = {}

    def visit(name: str) -> None:
        if name in modules:
            return
        text = _asset(name)
        for imported in IMPORT.findall(text):
            visit(imported)
        modules[name] = EXPORT.sub("", IMPORT.sub("", text))

    visit(entry)
    return "".join(modules.values())


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees the old content or all of the new one. Creates missing folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _asset(name: str) -> str:
    return files("saccade.view").joinpath("web", name).read_text(encoding="utf-8")


def _content_security_policy(style: str, script: str) -> str:
    """Allow only this style sheet and this script, by their hashes: no network, no inline handlers, no script from the
    data."""
    return (
        f"default-src 'none'; style-src '{_sha256_source(style)}'; script-src '{_sha256_source(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _sha256_source(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


def _script_safe_json(value: Mapping[str, Any]) -> str:
    """JSON that cannot end the script element it is embedded in."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).translate(UNSAFE_IN_SCRIPT)
