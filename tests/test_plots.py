"""Pictures hold what they were given, can be saved, and touch nothing of the process."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from ndpp import explain, plots
from ndpp.datasets import make_baskets
from ndpp.errors import InvalidInputError, MissingExtraError
from ndpp.explain import Pair, Pairs, Related, Share
from ndpp.kernel import LowRankKernel

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'ndpp[plot]'")


@pytest.fixture(scope="module")
def kernel():
    made = make_baskets(0, 24, n_pairs=4, rng=0)
    return LowRankKernel(
        made.kernel.X, made.kernel.W, labels=[f"item number {i} with a rather long name" for i in range(24)]
    )


@pytest.fixture
def pairs(kernel):
    return explain.strongest_pairs(kernel, n=4)


def texts(figure):
    return [text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text"))]


FIGURES = {
    "popularity": lambda kernel: plots.popularity(explain.popularity(kernel, 8)),
    "related": lambda kernel: plots.related(
        explain.related(kernel, explain.strongest_pairs(kernel).complements[0].first.item)
    ),
    "strongest_pairs": lambda kernel: plots.strongest_pairs(explain.strongest_pairs(kernel, n=4)),
    "pair_graph": lambda kernel: plots.pair_graph(explain.strongest_pairs(kernel, n=4)),
}


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_saved_as_png_and_svg(name, kernel, tmp_path):
    figure = FIGURES[name](kernel)
    figure.savefig(tmp_path / "figure.png", dpi=50)
    figure.savefig(tmp_path / "figure.svg")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert ET.parse(tmp_path / "figure.svg").getroot().tag.endswith("svg")
    assert len(set((tmp_path / "figure.png").read_bytes())) > 50  # something is drawn


@pytest.mark.parametrize("name", FIGURES)
def test_no_text_leaves_the_figure(name, kernel):
    figure = FIGURES[name](kernel)
    figure.draw_without_rendering()
    box = figure.get_tightbbox().transformed(figure.dpi_scale_trans)
    width, height = figure.get_size_inches() * figure.dpi
    assert box.x0 > -2
    assert box.y0 > -2
    assert box.x1 < width + 2
    assert box.y1 < height + 2


def test_bars_are_the_values():
    figure = plots.popularity([Share(0, "bread", 0.4), Share(1, "butter", 0.1)])
    axes = figure.axes[0]
    assert [bar.get_width() for bar in axes.patches] == [0.4, 0.1]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["bread", "butter"]
    assert {"40.0%", "10.0%"} <= set(texts(figure))


def test_attraction_and_repulsion_are_told_apart(pairs):
    axes = plots.strongest_pairs(pairs).axes[0]
    lifts = [pair.lift for pair in pairs.complements + pairs.substitutes]
    np.testing.assert_allclose([2 ** bar.get_width() for bar in axes.patches], lifts)
    assert (
        len({bar.get_facecolor() for bar in axes.patches[:4]} | {bar.get_hatch() or "" for bar in axes.patches[:4]})
        == 2
    )
    assert axes.patches[0].get_facecolor() != axes.patches[-1].get_facecolor()
    assert axes.patches[-1].get_hatch()


def test_lifts_of_zero_and_one_sided_findings_can_be_drawn():
    a, b = Share(0, "a", 0.5), Share(1, "b", 0.5)
    never, often = Pair(a, b, 0.0, -0.5), Pair(a, b, 0.4, 0.5)
    assert "0×" in texts(plots.related(Related(a, (), (never,))))
    figure = plots.related(Related(a, (often,), ()))
    assert "1.6×" in texts(figure)
    assert "stand in for each other" not in texts(figure)


def test_the_graph_has_a_line_for_each_pair_and_a_name_for_each_item(pairs):
    figure = plots.pair_graph(pairs)
    assert len(figure.axes[0].patches) == 8
    named = [text for text in texts(figure) if text.startswith("item number")]
    assert len(named) == 16
    assert all(len(text) <= 26 for text in named)


def test_nothing_to_draw():
    for call, empty in (
        (plots.popularity, ()),
        (plots.strongest_pairs, Pairs((), ())),
        (plots.pair_graph, Pairs((), ())),
    ):
        with pytest.raises(InvalidInputError, match="nothing to draw"):
            call(empty)


def test_without_matplotlib(monkeypatch, pairs):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for call in (plots.strongest_pairs, plots.pair_graph):
        with pytest.raises(MissingExtraError, match=r"pip install 'ndpp\[plot\]'"):
            call(pairs)


def test_pyplot_is_not_loaded():
    code = (
        "import sys, ndpp.plots; assert 'matplotlib' not in sys.modules\n"
        "from ndpp.explain import Share; ndpp.plots.popularity([Share(0, 'x', 0.5)])\n"
        "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
