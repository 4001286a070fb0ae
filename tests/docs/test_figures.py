"""Every published figure is what ``experiments/publish/figures.py`` writes from the recorded results; a figure that was typed is found."""

from __future__ import annotations

import importlib
import json
import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", "paper/paper.md", *(f"docs/{name}.md" for name in (
    "theory", "benchmarks", "compare", "fitting", "mixtures", "quality", "rankings", "scale", "gpu", "gpu-internals",
    "shop-over-a-year",
))]  # fmt: skip
MEASURED = re.compile(r"\d(\.\d+)? ?(ms|s|min|h|days|years|µs|MB|GB|×)(?!\w)")


@pytest.fixture(scope="module")
def figures():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "experiments" / "publish"))
        return importlib.import_module("figures")


@pytest.fixture
def copy(tmp_path):
    """The pages and the results in a folder that may be changed."""
    for folder in ("results", "benchmarks/results"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    for page in PAGES:
        (tmp_path / page).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / page, tmp_path / page)
    return tmp_path


def test_every_figure_is_that_of_the_results(figures):
    assert figures.stale() == []
    assert sorted(figures.pages()) == sorted(PAGES)


@pytest.mark.parametrize("page", ["README.md", "docs/benchmarks.md"])
def test_a_figure_that_was_typed_is_found(figures, copy, page):
    text = (copy / page).read_text(encoding="utf-8")
    start = text.index("| `Exact`") if page == "README.md" else text.index("**The default sampler")
    found = re.compile(r"\d+ ms").search(text, start)
    (copy / page).write_text(f"{text[: found.start()]}1{text[found.start() :]}", encoding="utf-8")
    assert figures.stale(copy) == [page]


def test_another_run_changes_both_pages(figures, copy):
    path = copy / "results" / "samplers.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    names = lines[0].split(",")
    first = next(i for i, line in enumerate(lines) if ",Exact," in line)
    values = lines[first].split(",")
    values[names.index("seconds")] = "0.777"
    path.write_text("\n".join([*lines[:first], ",".join(values), *lines[first + 1 :]]) + "\n", encoding="utf-8")
    assert figures.stale(copy) == ["README.md", "docs/benchmarks.md"]
    assert all("777 ms" in figures.pages(copy)[page] for page in ("README.md", "docs/benchmarks.md"))


@pytest.mark.parametrize(
    ("key", "value", "said"), [("run", "yesterday", "different runs"), ("quick", True, "quick runs")]
)
def test_figures_of_two_runs_or_of_a_quick_one_are_refused(figures, copy, key, value, said):
    path = copy / "results" / "single.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {key: value}), encoding="utf-8")
    with pytest.raises(ValueError, match=said):
        figures.pages(copy)


def test_what_others_do_better_is_said(figures, copy):
    """A single figure of the results decides: the list is not written by hand."""
    said = figures.pages(copy)["docs/compare.md"]
    lost = said[said.index("**Where others are better:**") : said.index("<!-- short: end -->")]
    assert "EASE: UK Retail, hit rate@10" in lost
    assert "SimplePGC" not in lost
    path = copy / "results" / "registries.csv"
    path.write_text(path.read_text(encoding="utf-8").replace(",-9.1,", ",-8.0,", 1), encoding="utf-8")
    assert "- SimplePGC, in log-likelihood: apparel." in figures.pages(copy)["docs/compare.md"]


def test_a_block_that_is_missing_is_told(figures, copy):
    page = copy / "docs" / "benchmarks.md"
    page.write_text(page.read_text(encoding="utf-8").replace("<!-- answer: end -->", ""), encoding="utf-8")
    with pytest.raises(ValueError, match="blocks"):
        figures.pages(copy)


CLEAN = ["README.md", *(f"docs/{name}.md" for name in (
    "benchmarks", "choosing", "coming_from_dppy", "compare", "diversity", "gallery", "gpu", "guide", "index", "quickstart", "rankings",
    "theory", "theory-laws",
))]  # fmt: skip
"""Pages without a measurement that was typed; the others have some, with the script that made them."""


@pytest.mark.parametrize("page", CLEAN)
def test_no_measurement_stands_outside_the_blocks(figures, page):
    assert not MEASURED.search(figures.BLOCK.sub("", (ROOT / page).read_text(encoding="utf-8")))


def test_a_measurement_is_told_from_other_numbers(figures):
    assert MEASURED.search(figures.BLOCK.sub("", "It takes 8.1 ms."))
    assert MEASURED.search((ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8"))
    assert not MEASURED.search("Sets of 10 sizes, 3 samples.")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.0065, "6.5 ms"), (1.9, "1.9 s"), (110.0, "110 s"), (17_685.0, "4.9 h"), (2.6e13, "10^5 years")],
)
def test_times_have_their_units(figures, seconds, shown):
    assert figures.duration(seconds) == shown
