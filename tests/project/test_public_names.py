"""`saccade.__all__` and lazy imports of the package."""

import importlib
import inspect
import pkgutil
import subprocess
import sys

import saccade
from saccade import parts


def test_every_public_name_can_be_imported() -> None:
    for name in saccade.__all__:
        assert getattr(saccade, name) is not None


def test_public_names_are_sorted_and_unique() -> None:
    assert saccade.__all__ == sorted(saccade.__all__)
    assert len(saccade.__all__) == len(set(saccade.__all__))


def test_public_names_are_those_of_the_lazy_import_table() -> None:
    assert set(saccade.__all__) == set(saccade._MODULES)


def test_no_module_shadows_a_public_function() -> None:
    for module in pkgutil.walk_packages(saccade.__path__, "saccade."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in ("capture", "load", "read_recipe", "train"):
        assert inspect.isfunction(getattr(saccade, name)), name


def test_parts_exports_every_table_and_every_kind() -> None:
    assert parts.__all__ == sorted(parts.__all__)
    tables = [getattr(parts, name) for name in parts.__all__ if name.isupper() and name != "NO_POSITION"]
    kinds = {kind.__name__ for table in tables for kind in table.values() if kind.__module__.startswith("saccade")}
    assert kinds <= {*parts.__all__}


def test_parts_names_every_module_that_is_not_a_slot() -> None:
    names = {module.name for module in pkgutil.iter_modules(parts.__path__)}
    assert {name for name in names if f"`{name}`" not in str(parts.__doc__)} == {
        name for name in names if name.upper() in parts.__all__ and name != "activations"
    }


def test_unknown_name_raises_attribute_error() -> None:
    assert not hasattr(saccade, "translator")


def test_importing_saccade_does_not_import_torch() -> None:
    code = "import saccade, saccade.cli, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
