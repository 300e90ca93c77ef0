"""No two modules define a public class or a public constant of the same name."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "saccade"
CONSTANT = re.compile(r"[A-Z][A-Z0-9_]*")


def assigned_names(statement: ast.stmt) -> Iterator[str]:
    """The names that an assignment binds, also inside a tuple."""
    if isinstance(statement, ast.AnnAssign):
        targets: list[ast.expr] = [statement.target]
    elif isinstance(statement, ast.Assign):
        targets = statement.targets
    else:
        return
    for target in targets:
        for node in ast.walk(target):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


def module_level(statements: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, also those below a module-level `if`, `try` or `with`."""
    for statement in statements:
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.With):
            for block in ("body", "orelse", "finalbody"):
                yield from module_level(getattr(statement, block, []))
            for handler in getattr(statement, "handlers", []):
                yield from module_level(handler.body)


def public_definitions(code: str) -> set[str]:
    """The public classes and the public UPPER_CASE constants that a module defines."""
    names = set()
    for statement in module_level(ast.parse(code).body):
        if isinstance(statement, ast.ClassDef):
            names.add(statement.name)
        names |= {name for name in assigned_names(statement) if CONSTANT.fullmatch(name)}
    return {name for name in names if not name.startswith("_")}


def duplicates(modules: dict[str, str]) -> dict[str, list[str]]:
    """Name → the modules that define it, for each name that more than one module defines."""
    homes: dict[str, list[str]] = defaultdict(list)
    for module, code in sorted(modules.items()):
        for name in public_definitions(code):
            homes[name].append(module)
    return {name: defining for name, defining in sorted(homes.items()) if len(defining) > 1}


def test_no_public_class_or_constant_is_defined_in_two_modules() -> None:
    modules = {path.relative_to(SOURCE).as_posix(): path.read_text("utf-8") for path in SOURCE.rglob("*.py")}
    lines = [f"{name}: {', '.join(defining)}" for name, defining in duplicates(modules).items()]
    assert not lines, "defined more than once:\n" + "\n".join(lines)


def test_the_search_finds_classes_constants_and_conditional_definitions() -> None:
    modules = {
        "a.py": "class Model: ...\nLIMIT: int = 3\nif True:\n    A, B = 1, 2\ndef write(): ...\n_SIZE = 1\nname = 2",
        "b.py": "class Model: ...\nLIMIT = 4\ntry:\n    B = 2\nexcept ImportError:\n    B = 3\n"
        "def write(): ...\n_SIZE = 1",
    }
    assert duplicates(modules) == {"B": ["a.py", "b.py"], "LIMIT": ["a.py", "b.py"], "Model": ["a.py", "b.py"]}
