"""Pictures hold what they were given, can be saved, and touch nothing of the process."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from ndpp import Mixture, answers, plots
from ndpp.answers.atlas import _features
from ndpp.answers.records import Pairs, Relation
from ndpp.datasets import make_baskets, make_kernel
from ndpp.errors import InvalidInputError, MissingExtraError
from ndpp.laws.kernel import LowRankKernel
from ndpp.plots.maps import _spread
from ndpp_experiments import plots as figures
from ndpp_experiments.plots import Bar, Curve, Panel

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'ndpp[plot]'")

CURVES = [
    Curve(f"sampler {i}", [10, 100, 1000], [0.3 * i, 0.1 * i, 0.03 * i], [0.2, 0.05, 0.01], [3.0, 1.0, 0.3])
    for i in range(1, 10)
]
LONG = [curve._replace(label=f"{curve.label} of a catalogue of many items, closed form") for curve in CURVES]
REFERENCE = Curve("perfect sampler", [10, 1000], [0.3, 0.03], [0.2, 0.02], [0.4, 0.04])
PANEL = Panel("a title", "samples", "distance", CURVES, REFERENCE, {"the limit": 0.01})
BARS = [Bar("k = 10", "walk", 3.5), Bar("k = 10", "Rejection", 2e4), Bar("k = 50", "Rejection", 3e13, True)]


@pytest.fixture(scope="module")
def kernel():
    made = make_baskets(0, 24, n_pairs=4, rng=0)
    return LowRankKernel(
        made.kernel.X, made.kernel.W, labels=[f"item number {i} with a rather long name" for i in range(24)]
    )


def texts(figure):
    return [text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text"))]


def mixture_of(kernel):
    """Three missions with the names and ties of a kernel."""
    odds = np.random.default_rng(0).gamma(0.5, 0.5, size=(3, kernel.n_items))
    return Mixture.tied(odds, 2 * kernel.X, (kernel.W - kernel.W.T) / 2, [0.5, 0.3, 0.2], labels=kernel.labels)


FIGURES = {
    "embedding_map": lambda kernel: plots.embedding_map(kernel, n=12, pairs=answers.pairs(kernel, n=4)),
    "map of a mixture": lambda kernel: plots.embedding_map(mixture_of(kernel), n=12),
    "convergence": lambda kernel: figures.convergence_curves([PANEL] * 2),
    "long names": lambda kernel: figures.convergence_curves([PANEL._replace(curves=LONG)]),
    "runtimes": lambda kernel: figures.runtimes([PANEL]),
    "rejections": lambda kernel: figures.rejections(BARS),
}


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_saved_and_no_text_leaves_them(name, kernel, tmp_path):
    figure = FIGURES[name](kernel)
    figure.savefig(tmp_path / "figure.png", dpi=50)
    figure.savefig(tmp_path / "figure.svg")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert ET.parse(tmp_path / "figure.svg").getroot().tag.endswith("svg")
    assert len(set((tmp_path / "figure.png").read_bytes())) > 50  # something is drawn
    box = figure.get_tightbbox().transformed(figure.dpi_scale_trans)
    width, height = figure.get_size_inches() * figure.dpi
    assert box.x0 > -2
    assert box.y0 > -2
    assert box.x1 < width + 2
    assert box.y1 < height + 2


def test_bands_are_drawn_around_curves_and_the_reference():
    bands = figures.convergence_curves([PANEL]).axes[0].collections
    assert len(bands) == 10  # nine curves and the reference, which is behind them
    edges = bands[0].get_paths()[0].vertices
    assert set(map(tuple, edges)) == {(10, 0.2), (10, 0.4), (1000, 0.02), (1000, 0.04)}


def test_no_two_curves_look_the_same():
    lines = figures.convergence_curves([PANEL]).axes[0].get_lines()[2:]
    looks = {(line.get_color(), line.get_marker(), str(line.get_linestyle())) for line in lines}
    assert len(looks) == len({line.get_color() for line in lines}) == len({line.get_marker() for line in lines}) == 9


def test_a_curve_looks_the_same_in_every_panel():
    second = PANEL._replace(curves=CURVES[3:5])
    figure = figures.convergence_curves([PANEL, second])
    colours = [{line.get_label(): line.get_color() for line in axes.get_lines()} for axes in figure.axes]
    assert colours[1]["sampler 5"] == colours[0]["sampler 5"]


def test_slopes_are_fitted_and_shown():
    n = np.array([10, 100, 1000])
    flat, cubic = Curve("flat", n, [2.0, 2.0, 2.0]), Curve("cubic", n, 1e-9 * n**3)
    figure = figures.runtimes([Panel("t", "n", "seconds", [flat, cubic])])
    assert {"flat (slope 0.00)", "cubic (slope 3.00)"} <= set(texts(figure))
    assert "flat" in texts(figures.runtimes([Panel("t", "n", "seconds", [flat])], slopes=False))
    noisy = Curve("noisy", n, [2.0, 2.1, 2.0])
    low, high = figures.runtimes([Panel("t", "n", "seconds", [noisy])]).axes[0].get_ylim()
    assert high / low >= 9.99  # a decade at least, so that noise does not look like a trend
    for x, y in (([1, 1], [1, 2]), ([1, 2], [0, 1]), ([1, 2, 3], [1, 2])):
        with pytest.raises(InvalidInputError, match="log-log"):
            figures.fitted_slope(x, y)


def test_expected_rejections_are_marked():
    figure = figures.rejections(BARS)
    assert "3e+13 (*)" in texts(figure)
    assert [bool(bar.get_hatch()) for bar in figure.axes[0].patches] == [False, False, True]
    assert not any("(*)" in text for text in texts(figures.rejections(BARS[:2])))
    assert "0" in texts(figures.rejections([Bar("a", "walk", 0.0)]))


def test_items_of_a_kind_are_near_each_other_on_the_map():
    kinds = np.tile(np.eye(4), (5, 1))  # those of a kind are far apart in the catalogue
    X = np.hstack([kinds, 0.3 * np.eye(20)])
    axes = plots.embedding_map(LowRankKernel(X, np.eye(24)), n=20).axes[0]
    names, places = zip(*((int(text.get_text()), text.xy) for text in axes.texts))
    places = np.array(places)[np.argsort(names)].reshape(5, 4, 2).swapaxes(0, 1)
    within = np.abs(places - places.mean(axis=1, keepdims=True)).mean(axis=(0, 1))
    between = np.abs(places.mean(axis=1) - places.mean(axis=(0, 1))).mean(axis=0)
    assert (within < between).all()  # in either direction
    with pytest.raises(InvalidInputError, match="between 4 and 20"):
        plots.embedding_map(LowRankKernel(X, np.eye(24)), n=21)


def test_a_background_does_not_move_items_on_the_map():
    kernel = make_kernel(12, 6, rng=0)
    background = LowRankKernel(kernel.X, kernel.W, background=np.linspace(0.0, 2.0, 12))
    items, probabilities = np.arange(12), kernel.component_inclusions()
    features = [_features(law, probabilities, items) for law in (background, kernel)]
    np.testing.assert_allclose(*(rows @ rows.T for rows in features), atol=1e-12)
    assert len(plots.embedding_map(background, n=12).axes[0].texts) == 12


def test_only_prominent_items_have_labels_on_a_large_map():
    kernel = make_kernel(300, 10, rng=0)
    axes = plots.embedding_map(kernel, n=200).axes[0]
    popular = np.argsort(-kernel.inclusion_probabilities(), kind="stable")[:60]
    assert [text.get_text() for text in axes.texts] == [str(item) for item in popular]
    assert sum(len(part.get_offsets()) for part in axes.collections) == 200


def test_labels_of_the_map_move_apart():
    places = _spread(np.full((9, 2), 0.5))
    assert (places[:, 0] == 0.5).all()
    assert np.diff(np.sort(places[:, 1])).min() > 0.9 * 0.032


def test_the_map_joins_what_is_on_it(kernel):
    items = [share.item for share in answers.describe(kernel, n=kernel.n_items).popular]
    on, off = (Relation("complement", items[0], other, 2.0, 1.0, 2.0, 0.1, 0.5) for other in (items[1], items[-1]))
    for pairs, lines in (((on, off), 1), ((off,), 0)):
        assert len(plots.embedding_map(kernel, n=12, pairs=Pairs(24, pairs, ())).axes[0].get_lines()) == lines


def test_nothing_to_draw():
    for call in (figures.convergence_curves, figures.rejections):
        with pytest.raises(InvalidInputError, match="nothing to draw"):
            call(())


def test_without_matplotlib(monkeypatch, kernel):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'ndpp\[plot\]'"):
        plots.embedding_map(kernel, n=12)


def test_pyplot_is_not_loaded():
    code = (
        "import sys, ndpp.plots; assert 'matplotlib' not in sys.modules\n"
        "ndpp.plots.embedding_map(ndpp.datasets.shelf_kernel(), n=12)\n"
        "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
