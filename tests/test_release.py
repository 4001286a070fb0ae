"""What a release consists of besides the package: the conda recipe, the container, the published pages, the paper."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import tomllib
from pathlib import Path

import pytest

from ndpp.cli import app

ROOT = Path(__file__).resolve().parents[1]
if not (ROOT / "Dockerfile").exists():
    pytest.skip("the source distribution has none of this", allow_module_level=True)

CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = CONFIG["project"]


def versions_of(requirements: list[str]) -> dict[str, str]:
    """Return {name: what is allowed} of "name>=1.0" or "name >=1.0"."""
    return dict(re.fullmatch(r"([\w-]+) ?(>=[\d.]+)", requirement).groups() for requirement in requirements)


# ---- conda -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def recipe() -> dict:
    return pytest.importorskip("yaml").safe_load((ROOT / "recipe" / "recipe.yaml").read_text(encoding="utf-8"))


def test_the_recipe_has_the_dependencies_of_the_package(recipe: dict):
    extras = PROJECT["optional-dependencies"]
    wanted = versions_of(PROJECT["dependencies"] + extras["cli"])
    run = [line for line in recipe["requirements"]["run"] if not line.startswith("python ")]
    assert versions_of(run) == wanted
    learn = {
        name.replace("pytorch", "torch"): v
        for name, v in versions_of(recipe["requirements"]["run_constraints"]).items()
    }
    assert learn == versions_of(extras["learn"])
    assert f">={recipe['context']['python_min']}" == PROJECT["requires-python"]


def test_the_recipe_describes_the_package(recipe: dict):
    (command,) = recipe["build"]["python"]["entry_points"]
    assert command == f"ndpp = {PROJECT['scripts']['ndpp']}"
    assert recipe["about"]["license"] == PROJECT["license"]
    assert recipe["about"]["repository"] == PROJECT["urls"]["Repository"]
    assert (recipe["context"]["version"], recipe["source"]["sha256"]) == (
        "VERSION",
        "SHA256",
    )  # make build fills them in


# ---- the two distributions -------------------------------------------------------------------------------------------------


def test_the_experiments_are_a_distribution_of_their_own():
    built = CONFIG["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert built == ["src/ndpp", "src/_ndpp_command.py"]
    experiments = tomllib.loads((ROOT / "experiments" / "pyproject.toml").read_text(encoding="utf-8"))
    for key in ("requires-python", "license", "authors"):
        assert experiments["project"][key] == PROJECT[key]
    added = experiments["project"]["entry-points"][app.GROUP]
    found = app.commands()["Experiments"]
    assert set(added) == set(app.EXPERIMENTS) == set(found)
    for name, place in added.items():
        module, _, function = place.partition(":")
        assert getattr(importlib.import_module(module), function) is found[name]


def test_make_installs_both_distributions_from_the_checkout():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    (needs,) = re.findall(r"^\$\(VENV\)/\.ready-%:(.*)$", text, re.MULTILINE)
    assert {"pyproject.toml", "experiments/pyproject.toml"} <= set(needs.split())
    assert "-e '.[$(EXTRAS)]' -e experiments\n" in text


# ---- the container ---------------------------------------------------------------------------------------------------------


def instructions(text: str) -> list[tuple[str, str]]:
    """Return the (instruction, arguments) of a container file."""
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return [tuple(line.split(" ", 1)) for line in lines]


def test_the_container_copies_what_is_there_and_nothing_else_is_sent():
    found = instructions((ROOT / "Dockerfile").read_text(encoding="utf-8"))
    copied = [words.split()[:-1] for name, words in found if name == "COPY" and not words.startswith("--from")]
    sources = {source for sources in copied for source in sources}
    assert sources
    assert all((ROOT / source).exists() for source in sources)
    sent = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert sent[0] == "*"
    assert {line[1:] for line in sent if line.startswith("!")} == sources


def test_the_container_installs_extras_that_exist_and_starts_the_command():
    found = instructions((ROOT / "Dockerfile").read_text(encoding="utf-8"))
    (extras,) = (re.search(r'"\.\[([\w,]+)\]"', words)[1].split(",") for name, words in found if "pip install" in words)
    assert set(extras) <= set(PROJECT["optional-dependencies"])
    commands = {name: json.loads(words) for name, words in found if name in ("ENTRYPOINT", "CMD")}
    words = commands["ENTRYPOINT"] + commands["CMD"]
    assert words[1] == "serve"
    page = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    assert all(word in page for word in words if word.startswith("--"))
    assert found[-1][0] == "CMD"
    assert ("USER", "10001") in found  # not root


# ---- the pages -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def publish():
    spec = importlib.util.spec_from_file_location("publish_docs", ROOT / ".ci" / "publish_docs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.publish


def test_pages_of_versions_stand_side_by_side(publish, tmp_path: Path):
    built, site, base = tmp_path / "html", tmp_path / "site", "https://pages.test/ndpp"
    (built / "_static").mkdir(parents=True)
    (built / ".doctrees").mkdir()
    site.mkdir()

    def deploy(folder: str) -> list[tuple[str, str]]:
        (built / "index.html").write_text(folder)
        publish(built, site, f"{base}/{folder}")
        versions = json.loads((site / "versions.json").read_text())
        return [(entry["version"], entry["url"].removeprefix(base)) for entry in versions]

    assert deploy("dev") == [("dev", "/dev/")]
    assert "url=dev/" in (site / "index.html").read_text()
    deploy("0.9.0")
    expected = [("dev", "/dev/"), ("0.10.0", "/stable/"), ("0.9.0", "/0.9.0/")]
    assert deploy("0.10.0") == expected
    assert deploy("0.9.0") == expected  # built once more: the newest release stays the stable one
    assert (site / "stable" / "index.html").read_text() == "0.10.0"
    assert "url=stable/" in (site / "index.html").read_text()
    assert (site / ".nojekyll").exists()
    assert not (site / "dev" / ".doctrees").exists()


# ---- the paper -------------------------------------------------------------------------------------------------------------


def test_the_paper_cites_what_is_in_its_bibliography_and_on_the_page_of_references():
    paper = (ROOT / "paper" / "paper.md").read_text(encoding="utf-8")
    bibliography = (ROOT / "paper" / "paper.bib").read_text(encoding="utf-8")
    keys = re.findall(r"^@\w+\{(\w+),", bibliography, re.MULTILINE)
    assert set(re.findall(r"@(\w+)", paper)) == set(keys)
    known = (ROOT / "docs" / "references.md").read_text(encoding="utf-8").lower().replace("*", "")
    titles = re.findall(r"^  title = \{(.*)\},$", bibliography, re.MULTILINE)
    assert len(titles) == len(keys)
    assert [title for title in titles if re.sub("[{}]", "", title).lower() not in known] == []


def test_the_pictures_of_the_paper_are_there():
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", (ROOT / "paper" / "paper.md").read_text(encoding="utf-8"))
    assert pictures
    assert all((ROOT / "paper" / picture).is_file() for picture in pictures)
