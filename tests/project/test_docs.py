"""In the README and the docs, Python code runs, commands parse, and links have targets."""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import saccade
from project.forking_runner import ForkingRunner, forking_runner
from saccade.cli import app
from saccade.training.progress import Silent

ROOT = Path(__file__).parents[2]
CLAIMS = ROOT / "docs" / "claims"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted(CLAIMS.glob("*.md")),
]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small run at runs/demo, where the pages expect it."""
    folder = tmp_path_factory.mktemp("docs")
    small = {"extends": "demo", "model": {"dim": 16}, "train": {"updates": 4, "validate_every": 4}}
    saccade.train(small, folder / "runs" / "demo", report=Silent())
    return folder


@pytest.fixture(scope="module")
def runner(folder: Path) -> Iterator[ForkingRunner]:
    with forking_runner(folder) as runner:
        yield runner


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda page: page.stem)
def test_python_on_the_page_runs(page: Path, runner: ForkingRunner) -> None:
    code, output = runner.run(f"page_{page.stem}", "\n".join(blocks(page, "python")))
    assert code == 0, output


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "sh")], ids=lambda page: page.stem)
def test_commands_on_the_page_parse(page: Path) -> None:
    lines = [line for block in blocks(page, "sh") for line in block.splitlines() if line.startswith("saccade ")]
    for line in lines:
        words = shlex.split(line.partition(" < ")[0], comments=True)
        app.parse_args(words[1:], print_error=False, exit_on_error=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_relative_links_have_targets(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text("utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_to_sections_have_headings(page: Path) -> None:
    for target, section in re.findall(r"\]\(([^)#]*)#([^)]+)\)", page.read_text("utf-8")):
        if "://" not in target:
            linked = page.parent / target if target else page
            headings = re.findall(r"^#+ (.+)$", linked.read_text("utf-8"), re.MULTILINE)
            assert section in [slug(heading) for heading in headings], f"{page.name}: {target}#{section}"


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_readme_is_short_and_has_both_make_commands() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert text.count("\n") <= 150
    assert "make demo" in text
    assert "make test" in text


def test_readme_table_cells_have_at_most_15_words() -> None:
    text = re.sub(r"\]\([^)]*\)", "]", (ROOT / "README.md").read_text("utf-8"))
    cells = [cell for line in text.splitlines() if line.startswith("|") for cell in line.strip("|").split("|")]
    assert cells
    assert not [cell for cell in cells if len(cell.split()) > 15]


def test_docs_index_lists_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "README.md" or f"]({page.name})" in index, page.name


def test_design_tree_names_every_module() -> None:
    tree = set(re.findall(r"\w+", blocks(ROOT / "docs" / "design.md", "text")[0]))
    modules = {path.stem for path in (ROOT / "src" / "saccade").rglob("*.py") if not path.stem.startswith("__")}
    assert modules <= tree, "add these modules to the tree of docs/design.md"


def test_files_that_the_design_names_exist() -> None:
    text = (ROOT / "docs" / "design.md").read_text("utf-8").split("## From the command to the result")[1]
    named = re.findall(r"`((?:[a-z_0-9]+/)*[a-z_0-9]+(?:/|\.py))`", text.split("## Contracts")[0])
    assert len(named) > 30
    assert [name for name in named if not (ROOT / "src" / "saccade" / name).exists()] == []


def test_parts_page_is_up_to_date() -> None:
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        from make_parts import page
    finally:
        sys.path.pop(0)
    assert (ROOT / "docs" / "parts.md").read_text("utf-8") == page(), "run: python docs/make_parts.py"


def test_every_claim_has_script_small_picture_code_and_index_entry() -> None:
    index = (CLAIMS / "README.md").read_text("utf-8")
    pages = [page for page in CLAIMS.glob("*.md") if page.name != "README.md"]
    assert pages
    for page in pages:
        text = page.read_text("utf-8")
        assert f"]({page.name})" in index, page
        assert page.with_suffix(".py").exists(), page
        assert f"`python docs/claims/{page.stem}.py`" in text, page
        assert blocks(page, "python"), page
        assert "<!-- tables -->\n\n|" in text, f"{page}: run its script, which inserts the results"
        assert f"(../images/claims-{page.stem}.png)" in text, page
        assert (ROOT / "docs" / "images" / f"claims-{page.stem}.png").stat().st_size < 80_000, page
