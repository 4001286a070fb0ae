"""Every published figure is what ``experiments/publish/figures.py`` writes from the recorded results; a figure that was typed is found."""

from __future__ import annotations

import csv
import importlib
import json
import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", "paper/paper.md", "results/report.md", *(f"docs/{name}.md" for name in (
    "theory", "benchmarks", "compare", "customers", "fitting", "limits", "mixtures", "quality", "rankings", "scale", "gpu", "gpu-internals",
    "production", "shop-over-a-year", "serving", "paper", "subsets", "torch",
))]  # fmt: skip


@pytest.fixture(scope="module")
def figures():
    return module("figures")


@pytest.fixture(scope="module")
def typed():
    return module("typed")


def module(name: str):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "experiments" / "publish"))
        return importlib.import_module(name)


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
    assert "EDLAE by basket size: UK Retail, hit rate@10" in lost
    assert "SimplePGC" not in lost
    path = copy / "results" / "registries.csv"
    path.write_text(path.read_text(encoding="utf-8").replace(",-9.1,", ",-8.0,", 1), encoding="utf-8")
    assert "- SimplePGC, in log-likelihood: apparel." in figures.pages(copy)["docs/compare.md"]


def test_a_block_that_is_missing_is_told(figures, copy):
    page = copy / "docs" / "benchmarks.md"
    page.write_text(page.read_text(encoding="utf-8").replace("<!-- answer: end -->", ""), encoding="utf-8")
    with pytest.raises(ValueError, match="blocks"):
        figures.pages(copy)


@pytest.mark.parametrize(
    ("name", "column", "page"),
    [
        ("prices", "effect", "shop-over-a-year"),
        ("prices-departments", "effect", "shop-over-a-year"),
        ("limits", "seconds", "limits"),
        ("limits-methods", "distance", "limits"),
        ("a-year", "hit_rate", "shop-over-a-year"),
        ("new_items", "mpr", "production"),
    ],
)
def test_another_result_of_an_experiment_changes_its_page(figures, copy, name, column, page):
    path = copy / "results" / f"{name}.csv"
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    rows[-1 if name == "a-year" else 0][column] = "0.777"
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    assert figures.stale(copy) == [f"docs/{page}.md"]


def test_kernels_of_the_papers_recipe_change_its_page(figures, copy):
    path = copy / "results" / "published.json"
    path.unlink(missing_ok=True)
    assert "not learned yet" in figures.pages(copy)["docs/paper.md"]
    one = {
        "data": "uk_retail", "kind": "ondpp", "variant": "", "settings": {"alpha": 0.01, "gamma": 0.5}, "n_items": 3941,
        "n_train": 17762, "epochs": 777, "ended": "converged", "test": -101.25, "mean_size": 18.5,
        "log10_proposals": {"10": 0.25, "50": 1.5, "any": 0.0},
    }  # fmt: skip
    record = {"machine": {"cpu": "a CPU", "cores": 1, "python": "3.12", "versions": {}}}
    record["kernels"] = [one, {**one, "variant": "five times the steps", "test": -100.5}]
    path.write_text(json.dumps(record), encoding="utf-8")
    text = figures.pages(copy)["docs/paper.md"]
    assert "| k = 10 | UK Retail | 0 | 0.778 | 15.3 | 0 |" in text  # 10^0.25 − 1
    assert "| ONDPP | k = 50 | +1.5 (UK Retail) |" in text
    assert "| ONDPP: five times the steps | 777, converged | -100.50 |" in text
    assert "| UK Retail | ONDPP | α = β = 0.01, γ = 0.5 | 3,941 | 17,762 | 777 | converged | -101.25 | 18.50 |" in text
    assert "| Recipe | ONDPP | not learned yet |" in text


def test_an_experiment_run_again_changes_the_report(figures, copy):
    path = copy / "results" / "psrf.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    record["findings"][0]["ours"] = "777 steps"
    path.write_text(json.dumps(record), encoding="utf-8")
    assert figures.stale(copy) == ["results/report.md"]


def test_no_measurement_was_typed(typed):
    assert typed.everywhere(ROOT) == []


def test_nothing_is_allowed_that_stands_nowhere(typed):
    assert typed.unused(ROOT) == []


@pytest.mark.parametrize(
    "planted",
    [
        "A sample takes 8.1 ms.", "It takes 8 s.", "It took 12 minutes.", "That is done in two minutes.", "It holds 340 MB.", "400 GiB",
        "It is 3 times as fast as before.", "It is twenty times faster.", "It keeps 71 % of the gain.", "It gains 2 nats.",
        "It draws 150,000 exact samples per second.", "48,000 per CPU second", "The hit rate is 0.34.", "| recall | .218 |", "−1.80 ± 0.09",
    ],
)  # fmt: skip
def test_a_measurement_that_was_typed_is_found(typed, planted):
    """Each is found on a page of its own and on one that has everything else, also where the page may say something like it."""
    assert len(typed.typed(planted)) >= 1
    for page in ("README.md", "docs/serving.md", "docs/limits.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert typed.typed(f"{text}\n{planted}\n", typed.ALLOWED.get(page, ()))


@pytest.mark.parametrize(
    "text",
    [
        "Sets of 10 sizes, 3 samples.", "`sleep 5 s`", "```\n2.5 ms\n```", "$x = 0.5$", "$$\n0.5\n$$", "[link](page-0.5.html)", "https://x.org/1.5",
        "<!-- a: written by experiments/publish/figures.py -->\n\n5 ms\n\n<!-- a: end -->", "Python 3.11 to 3.13", "95 % intervals",
    ],
)  # fmt: skip
def test_what_is_no_prose_and_no_measurement_may_be_typed(typed, text):
    assert typed.typed(text) == []


def test_a_docstring_may_not_have_measurements_either(typed, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "fast.py").write_text('"""A draw takes 5 ms.\n\n>>> wait("5 s")\n"""\n', encoding="utf-8")
    ((name, text),) = typed.docstrings(tmp_path)
    assert (name, len(typed.typed(text))) == ("src/fast.py", 1)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.0065, "6.5 ms"), (1.9, "1.9 s"), (110.0, "110 s"), (17_685.0, "4.9 h"), (2.6e13, "10^5 years")],
)
def test_times_have_their_units(figures, seconds, shown):
    assert figures.duration(seconds) == shown
