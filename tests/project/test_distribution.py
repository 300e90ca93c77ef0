"""The distribution on the Python index is `saccade-attention`; `saccade` there is someone else's package."""

import re
import tomllib
from pathlib import Path

import pytest

from saccade.distribution import DISTRIBUTION, install_command

ROOT = Path(__file__).parents[2]
TEXTS = sorted(
    path
    for pattern in ("*.md", "*.toml", "Makefile", "docs/**/*.md", "src/**/*.py", "src/**/*.html", "src/**/*.js")
    for path in ROOT.glob(pattern)
)


def foreign_installs(text: str) -> list[str]:
    """Commands and requirements that would install the distribution named `saccade`."""
    return re.findall(r"pip install (?:-\S+ )*['\"]?saccade(?![-\w.])[^\n]*|['\"]saccade\[[^\n]*", text)


def test_pyproject_and_messages_use_the_same_distribution_name() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["name"] == DISTRIBUTION
    assert install_command("serve") == "pip install 'saccade-attention[serve]'"


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_page_or_message_installs_the_other_saccade(path: Path) -> None:
    assert not foreign_installs(path.read_text("utf-8"))


def test_every_extra_is_imported_by_the_package_the_docs_or_the_benchmarks() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    code = "\n".join(
        path.read_text("utf-8") for folder in ("src", "docs", "benchmarks") for path in (ROOT / folder).rglob("*.py")
    )
    for name in extras.keys() - {"test", "lint"}:
        packages = [re.split(r"[\[<>=]", requirement)[0].replace("-", "_") for requirement in extras[name]]
        assert any(re.search(rf"(import|from) {package}\b", code) for package in packages), f"nothing imports '{name}'"


def test_a_plain_install_of_saccade_is_noticed() -> None:
    assert foreign_installs("pip install 'saccade[serve]'")
    assert foreign_installs("pip install saccade")
    assert foreign_installs('"saccade[fast]",')
    assert not foreign_installs("pip install 'saccade-attention[serve]' and saccade serve RUN")
