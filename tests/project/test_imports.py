"""Modules import only their own package and lower layers; the source has no unsafe calls, and no long functions or
files."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "saccade"

# From the lowest to the highest layer. A module may import its own package and those of lower layers.
LAYERS = [
    ["distribution", "errors", "inputs", "shapes"],
    ["config", "console", "devices"],
    ["config_files"],
    ["places"],
    ["notes"],
    ["data"],
    ["aligners"],
    ["parts"],
    ["models"],
    ["decode", "metrics"],
    ["tasks"],
    ["attention_alignment"],
    ["optim"],
    ["recipe"],
    ["runs"],
    ["encoding"],
    ["training"],
    ["view"],
    ["formats"],
    ["api", "lines"],
    ["demo", "serve"],
    ["cli"],
    ["__main__"],
]
LAYER_OF = {name: layer for layer, names in enumerate(LAYERS) for name in names}


def modules() -> dict[Path, str]:
    """Each file, and the package or top-level module that it belongs to."""
    return {
        path: path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for path in SOURCE.rglob("*.py")
        if path.parent != SOURCE or path.name != "__init__.py"
    }


def imported(path: Path) -> set[str]:
    """The packages of Saccade that a file imports, also inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "saccade":
            parts = node.module.split(".")
            names |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        if isinstance(node, ast.Import):
            names |= {a.name.split(".")[1] for a in node.names if a.name.startswith("saccade.")}
    return names & LAYER_OF.keys()


def test_every_package_has_a_layer() -> None:
    assert {package for package in modules().values() if package != "presets"} == set(LAYER_OF)


def test_modules_import_only_lower_layers() -> None:
    wrong = [
        f"{path.relative_to(SOURCE)} imports {name}"
        for path, package in modules().items()
        if package in LAYER_OF
        for name in imported(path)
        if LAYER_OF[name] > LAYER_OF[package] or (LAYER_OF[name] == LAYER_OF[package] and name != package)
    ]
    assert not wrong


def test_code_neither_unpickles_nor_evaluates_strings() -> None:
    for path in SOURCE.rglob("*.py"):
        text = path.read_text("utf-8")
        for call in ("import pickle", "torch.load(", "torch.save(", " eval(", " exec(", "shell=True"):
            assert call not in text.replace(".eval(", ""), f"{path}: {call}"


def test_functions_and_files_are_short() -> None:
    for path in SOURCE.rglob("*.py"):
        text = path.read_text("utf-8")
        assert text.count("\n") <= 450, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                first = node.body[1] if len(node.body) > 1 and ast.get_docstring(node) else node.body[0]
                assert (node.end_lineno or 0) - first.lineno < 45, f"{path}: {node.name}"
