"""What is not installed is named, with the command that installs it; what does not need it works without."""

from __future__ import annotations

import pytest

import ndpp
from command import end, launch, spawn, without


@pytest.mark.parametrize(
    ("package", "words", "extra"),
    [
        ("typer", ["--help"], "cli"),
        ("torch", ["fit", "MODELS/orders.csv", "-o", "x.safetensors"], "learn"),
        ("pyarrow", ["sample", "SHELF", "-o", "x.parquet"], "data"),
        ("pyarrow", ["recommend", "SHELF", "--given", "bread", "-o", "x.parquet"], "data"),
        ("jinja2", ["report", "SHELF", "-o", "x.html"], "cli"),
        ("fastapi", ["serve", "SHELF"], "serve"),
        ("matplotlib", ["reproduce", "fig1", "--quick", "-o", "results"], "plot"),
    ],
)
def test_a_missing_extra_is_named(models, tmp_path, package, words, extra):
    named = [word.replace("MODELS", str(models)).replace("SHELF", f"{models}/shelf.safetensors") for word in words]
    work = tmp_path / "work"
    work.mkdir()
    done = end(spawn(*named, cwd=work, env=without(tmp_path, package)))
    *stages, error = done.err.splitlines()
    assert (done.code, done.out, stages) == (
        1,
        "",
        [line for line in stages if line.startswith(("reading", "loading"))],
    )
    assert f"needs the package '{package}', which is not installed. Run: pip install 'ndpp[{extra}]'" in error
    assert not [path for path in work.iterdir() if path.suffix != ".ndpp-part"]


def test_commands_of_the_experiments_say_what_to_install(tmp_path):
    env = without(tmp_path, "ndpp_experiments")
    for words in (["demo"], ["reproduce", "fig1", "--quick"], ["bench", "--help"]):
        done = end(spawn(*words, cwd=tmp_path, env=env))
        advice = f"Run: pip install ndpp-experiments=={ndpp.__version__}"
        assert (done.code, done.out) == (1, "")
        assert done.err == f"ndpp: error: 'ndpp {words[0]}' needs the package ndpp-experiments. {advice}\n"
    shown = end(spawn("--help", cwd=tmp_path, env=env))
    assert (shown.code, shown.err) == (0, "")
    assert "sample" in shown.out
    assert "bench" not in shown.out


def test_most_commands_need_none_of_the_heavy_ones(models, tmp_path):
    env = without(tmp_path, "torch", "sklearn", "matplotlib", "pandas", "polars", "pyarrow", "arviz_stats")
    shelf = models / "shelf.safetensors"
    asked = ["evaluate", shelf, models / "orders.csv", "--bootstrap", 0]
    for start, words in ((spawn, ["info", shelf]), (launch, asked)):
        done = end(start(*words, cwd=tmp_path, env=env))
        assert (done.code, done.err) == (0, ""), words
