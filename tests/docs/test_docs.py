"""What the README and the documentation say is run: every Python block, in the order it stands on its page."""

from __future__ import annotations

import doctest
import re
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

import ndpp
from frameworks import stand_in

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(python|pycon)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS

PAGES = [
    path
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if FENCE.search(path.read_text(encoding="utf-8"))
]


def run_blocks(text: str, name: str) -> dict[str, object]:
    """Run the fenced blocks of a page in one namespace and return it; in ``pycon`` blocks the printed results must match too."""
    names: dict[str, object] = {"__name__": "__main__"}
    for block in FENCE.finditer(text):
        kind, code = block.groups()
        where = f"{name}, line {text[: block.start()].count(chr(10)) + 2}"
        if kind == "python":
            exec(compile(code, where, "exec", dont_inherit=True), names)
            continue
        runner = doctest.DocTestRunner(optionflags=FLAGS)
        test = doctest.DocTestParser().get_doctest(code, names, where, name, 0)
        failures: list[str] = []
        runner.run(test, out=failures.append, clear_globs=False)
        names.update(test.globs)
        assert not runner.failures, "".join(failures)
    return names


@pytest.mark.usefixtures("short_epochs")
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name not in ("cli.md", "diversity.md", "shop-over-a-year.md")],
    ids=lambda path: path.name,
)
def test_the_page_runs_as_written(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stand_in(monkeypatch)
    with falls_back_to_the_cpu() if page.name == "gpu.md" else nullcontext():
        run_blocks(page.read_text(encoding="utf-8"), page.name)


def falls_back_to_the_cpu():
    """Without a GPU, ``device="cuda"`` warns and draws on the CPU."""
    if pytest.importorskip("torch").cuda.is_available():
        return nullcontext()
    return pytest.warns(RuntimeWarning, match="finds no CUDA device")


def test_readme_has_a_quick_start():
    assert ROOT / "README.md" in PAGES


def test_a_wrong_page_fails():
    with pytest.raises(AssertionError, match="Expected"):
        run_blocks("```pycon\n>>> 1 + 1\n3\n```\n", "wrong")
    with pytest.raises(ZeroDivisionError):
        run_blocks("```python\n1 / 0\n```\n", "wrong")


def test_every_public_name_is_in_the_api_pages():
    pages = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "api").glob("*.md"))
    listed = set(re.findall(r"^   (\w+)$", pages, re.MULTILINE)) | set(
        re.findall(r"module:: ndpp\.(\w+)$", pages, re.MULTILINE)
    )
    assert set(ndpp.__all__) <= listed


NAMED = re.compile(r"`((?:[\w-]+/)+[\w-]+\.py)\b")
EXAMPLES = {"tests/samplers/test_sequential.py"}
"""What a page tells readers to write."""


def test_files_that_pages_name_are_there():
    missing, package = [], ROOT / "src" / "ndpp"
    for path in (*ROOT.glob("*/README.md"), ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        named = set(NAMED.findall(path.read_text(encoding="utf-8"))) - EXAMPLES
        roots = (path.parent, ROOT, ROOT / "src", package, package / "samplers" / "gpu")
        missing += [f"{path.name}: {name}" for name in named if not any((root / name).exists() for root in roots)]
    assert missing == []


def test_the_architecture_lists_every_module():
    """Those of the GPU engine have a page of their own."""
    words = re.findall(r"`([\w/.]+)`", (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))
    listed = {Path(word).name.removesuffix(".py") for word in words}
    modules = {path.stem for path in (ROOT / "src" / "ndpp").rglob("*.py") if "gpu" not in path.parts}
    assert {name for name in modules if not name.startswith("__")} - listed == set()


# ---- adapters for other frameworks, which stand-ins replace where they are not installed ------------------------------

PASSAGES = {"cats": [1.0, 0.0, 0.1], "kittens": [0.99, 0.02, 0.1], "trains": [0.0, 1.0, 0.2], "tea": [0.1, 0.3, 1.0]}
SCORES = [0.9, 0.89, 0.4, 0.5]


class Vectors:
    """Embeddings as LangChain and LlamaIndex ask for them."""

    def embed_documents(self, texts):
        return [PASSAGES[text] for text in texts]

    def embed_query(self, text):
        return [1.0, 0.3, 0.4]

    get_text_embedding_batch = embed_documents


@pytest.fixture(scope="module")
def names(tmp_path_factory) -> Iterator[dict]:
    """What is defined on the page about diversity, which runs here and nowhere else."""
    page = (ROOT / "docs" / "diversity.md").read_text(encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("diversity"))
        stand_in(patch)
        yield run_blocks(page, "diversity.md")


def test_adapters_choose_passages_that_differ(names: dict):
    """One of two passages about cats, and everything else: in whatever class the framework wants."""
    from haystack import Document as HaystackDocument
    from langchain_core.documents import Document
    from llama_index.core.schema import NodeWithScore, TextNode

    documents = [Document(page_content=text) for text in PASSAGES]
    chosen = names["DiverseDocuments"](embeddings=Vectors(), k=3).compress_documents(documents, "pets")
    assert {document.page_content for document in chosen} in ({"cats", "trains", "tea"}, {"kittens", "trains", "tea"})
    assert all(any(document is one for one in documents) for document in chosen)

    found = [
        HaystackDocument(content=text, embedding=vector, score=score)
        for (text, vector), score in zip(PASSAGES.items(), SCORES)
    ]
    ranked = names["DiversityRanker"](top_k=3).run(documents=found)["documents"]
    assert [document.content for document in ranked] == ["cats", "tea", "trains"]
    assert len(names["DiversityRanker"](top_k=9).run(documents=found[:2])["documents"]) == 2

    nodes = [NodeWithScore(node=TextNode(text=text), score=score) for text, score in zip(PASSAGES, SCORES)]
    kept = names["DiverseNodes"](embed_model=Vectors(), k=3).postprocess_nodes(nodes)
    assert [node.get_content() for node in kept] == ["cats", "tea", "trains"]


def test_without_diversity_scores_decide(names: dict):
    """A negative control: the passages that the adapters leave out are left out for being alike."""
    assert sorted(names["diverse"](np.array(list(PASSAGES.values())), SCORES, 3, 0.1)) == [0, 1, 3]
