"""Imports point one way, and only the command line's heavy commands pay for torch."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "saccade"

# From the bottom to the top. A module may import what stands in its own layer or below.
LAYERS = [
    ["errors", "shapes"],
    ["config", "console"],
    ["places"],
    ["notes"],
    ["data"],
    ["aligners"],
    ["parts"],
    ["models"],
    ["decode", "metrics"],
    ["tasks"],
    ["align"],
    ["optim"],
    ["recipe"],
    ["runs"],
    ["training"],
    ["view"],
    ["formats"],
    ["api", "lines"],
    ["demo", "serve"],
    ["cli"],
    ["__main__"],
]
HEIGHT = {name: height for height, names in enumerate(LAYERS) for name in names}


def modules() -> dict[Path, str]:
    return {
        path: path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for path in SOURCE.rglob("*.py")
        if path.parent != SOURCE or path.name != "__init__.py"
    }


def imported(path: Path) -> set[str]:
    """The rooms of Saccade that a file imports, wherever in it the import stands."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "saccade":
            parts = node.module.split(".")
            names |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        if isinstance(node, ast.Import):
            names |= {a.name.split(".")[1] for a in node.names if a.name.startswith("saccade.")}
    return names & HEIGHT.keys()


def test_every_room_has_a_layer() -> None:
    assert {room for room in modules().values() if room != "presets"} == set(HEIGHT)


def test_imports_point_down() -> None:
    wrong = [
        f"{path.relative_to(SOURCE)} imports {name}"
        for path, room in modules().items()
        if room in HEIGHT
        for name in imported(path)
        if HEIGHT[name] > HEIGHT[room] or (HEIGHT[name] == HEIGHT[room] and name != room)
    ]
    assert not wrong


def test_nothing_is_pickled_or_evaluated() -> None:
    for path in SOURCE.rglob("*.py"):
        text = path.read_text("utf-8")
        for word in ("import pickle", "torch.load(", "torch.save(", " eval(", " exec(", "shell=True"):
            assert word not in text.replace(".eval(", ""), f"{path}: {word}"


def test_functions_and_files_stay_short() -> None:
    for path in SOURCE.rglob("*.py"):
        text = path.read_text("utf-8")
        assert text.count("\n") <= 450, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                first = node.body[1] if len(node.body) > 1 and ast.get_docstring(node) else node.body[0]
                assert (node.end_lineno or 0) - first.lineno < 45, f"{path}: {node.name}"
