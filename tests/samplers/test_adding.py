"""The page on adding a sampler: its skeleton passes the contract, a slightly wrong one does not, and one entry serves all."""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

import contract
import ndpp
from command import end, spawn
from ndpp.datasets import make_kernel
from ndpp.samplers import registry
from ndpp_experiments import table1
from ndpp_experiments.samplers_timed import time_samplers
from ndpp_experiments.tree import Tree

PAGE = Path(__file__).resolve().parents[2] / "docs" / "adding-a-sampler.md"
CODE = "".join(re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL))


def entry(code: str, name: str = "sequential") -> registry.SamplerSpec:
    """Run the page's code as a module and return what it would add to the registry."""
    module = sys.modules[name] = ModuleType(name)
    exec(compile(code, PAGE.name, "exec", dont_inherit=True), vars(module))
    return module.SEQUENTIAL


def test_the_skeleton_is_short():
    block = CODE[: CODE.index("from ndpp.samplers.registry")]
    lines = [line for line in block.split('"""', 2)[2].splitlines() if line.strip()]
    assert len(lines) <= 60


@pytest.mark.parametrize("variant", contract.variants(entry(CODE)), ids=str)
def test_the_skeleton_keeps_every_promise(variant):
    contract.check(variant)


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("np.ones(1)", "np.full(1, 0.8)", "follow the law"),  # as the page says: the sampler of 0.8 L
        ("(p if inside else p - 1)", "(p if inside else -1)", r"follow the law|tuple"),
    ],
    ids=["another scale", "another update"],
)
def test_a_slightly_wrong_law_is_rejected(right, wrong, told):
    """Negative control: added the same way, and run through the same check."""
    assert right in CODE
    spec = entry(CODE[: CODE.index("sampler = ")].replace(right, wrong), "wrong")
    for variant in contract.variants(spec):
        with pytest.raises(AssertionError, match=told):
            contract.check(variant)


def test_one_entry_serves_experiments_and_benchmarks(monkeypatch):
    spec = entry(CODE)
    monkeypatch.setattr(registry, "SAMPLERS", (*registry.SAMPLERS, spec))
    kernel = make_kernel(30, 6, rng=0)
    assert registry.offered(None)[-1] is spec
    times = list(time_samplers(kernel, Tree.prepare(kernel), None, seed=0, seconds=0.0))
    assert times[-1].sampler == "Sequential"
    assert "Sequential" in table1.unit_times(kernel, 3, seed=0, seconds=0.0, only_of_size=False)


def test_one_entry_serves_the_tables(monkeypatch):
    monkeypatch.syspath_prepend(PAGE.parents[1] / "experiments" / "publish")
    import figures

    spec = entry(CODE)
    monkeypatch.setattr(figures, "SAMPLERS", (*registry.SAMPLERS, spec))
    shown = [figures.about(spec) for spec in figures.pictured()]
    assert ["`Sequential`", "any size", "yes"] in shown
    assert [exact for *_, exact in shown] == sorted([exact for *_, exact in shown], reverse=True)


ADDED = """
import sys
sys.path.insert(0, "")
import sequential
from ndpp.samplers import registry
registry.SAMPLERS = (*registry.SAMPLERS, sequential.SEQUENTIAL)
for name in [name for name in sys.modules if name.startswith("ndpp.cli")]:
    del sys.modules[name]  # it was imported before the sampler was added
"""


def test_one_entry_serves_the_command(tmp_path):
    (tmp_path / "sequential.py").write_text(CODE)
    ndpp.save(make_kernel(30, 6, rng=0), tmp_path / "model.safetensors")

    def call(*words):
        return end(spawn(*words, cwd=tmp_path, preexec_fn=partial(exec, ADDED, {})))

    done = call("sample", "model.safetensors", "-n", "3", "--sampler", "sequential", "--seed", "1")
    assert done.code == 0, done.err
    drawn = entry(CODE).prepare(ndpp.load(tmp_path / "model.safetensors"), registry.Request()).sample(3, rng=1).baskets
    assert [line.split() for line in done.out.splitlines()] == [list(map(str, items)) for items in drawn.to_lists()]
    refused = call("sample", "model.safetensors", "--sampler", "sequential", "--size", "3")
    assert refused.code == 2
    assert "draws baskets of any size" in refused.err
    timed = call("bench", "model.safetensors", "--any-size", "--seconds", "0")
    assert "sequential" in timed.out
