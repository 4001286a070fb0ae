"""ndpp report writes one page that says what the library says, runs nothing and loads nothing."""

from __future__ import annotations

import shutil
from itertools import product

import numpy as np
import pytest

import ndpp
from command import end, run, spawn, without
from ndpp import answers, metrics
from ndpp.baskets.orders import Orders
from ndpp.cli.report import by_week, size_columns
from pages import HOSTILE, page_of


def test_a_page_about_a_kernel(shelf, models, tmp_path):
    done = run(tmp_path, "report", shelf, "-o", "report.html", "--test", models / "orders.csv")
    assert (done.code, done.out, done.err) == (0, "", "")
    page, kernel = page_of(tmp_path / "report.html"), ndpp.load(shelf)
    page.check_alone()
    for share in answers.describe(kernel, n=12).popular:
        assert f"{share.item} {share.probability:.1%}" in page.text.replace(share.item, share.item + " ").replace(
            "  ", " "
        )
    best = answers.pairs(kernel, n=1).complements[0]
    assert f"{best.item} + {best.other}" in page.text
    assert "Missions" not in page.text
    assert "svg" in page.tags
    baskets = ndpp.Baskets.read(models / "orders.csv", labels=kernel.labels)
    gain = metrics.compare_models({"model": kernel, "other": metrics.independent_margins(kernel)}, baskets, rng=0)
    for _, lines in gain.tables():
        assert all(value in page.text for value in lines[0])
    assert "the test baskets" in page.text


def test_a_page_about_a_mixture(call, mixture, tmp_path):
    assert call("report", mixture, "-o", tmp_path / "report.html").code == 0
    page, law = page_of(tmp_path / "report.html"), ndpp.load(mixture)
    page.check_alone()
    for mission in answers.missions(law):
        assert mission.name in page.text
        assert f"{mission.share:.1%} of baskets, {mission.mean_size:.1f} items each" in page.text
    assert "Evaluation" not in page.text
    assert "than their missions explain" in page.text
    assert "svg" in page.tags


def test_names_are_text(call, tmp_path):
    kernel = ndpp.LowRankKernel(np.eye(7), np.eye(7) + np.triu(np.ones((7, 7)), 1) - np.tril(np.ones((7, 7)), -1))
    ndpp.save(ndpp.LowRankKernel(kernel.X, kernel.W, labels=HOSTILE), tmp_path / "m<b>&.safetensors")
    assert call("report", tmp_path / "m<b>&.safetensors", "-o", tmp_path / "r.html").code == 0
    page = page_of(tmp_path / "r.html")
    page.check_alone()
    for label in [*HOSTILE[:4], "\\x1b[31mred", "\\u202eabc", "m<b>&.safetensors"]:
        assert label in page.text
    assert not set("\x1b\u202e") & set(page.text)


def test_the_same_model_gives_the_same_page(call, shelf, tmp_path):
    for name in "ab":
        assert call("report", shelf, "-o", tmp_path / f"{name}.html").code == 0
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_without_matplotlib_there_is_no_map(shelf, tmp_path):
    done = end(spawn("report", shelf, "-o", "report.html", cwd=tmp_path, env=without(tmp_path, "matplotlib")))
    assert (done.code, done.err) == (0, "")
    assert "svg" not in page_of(tmp_path / "report.html").tags


def test_refusals(call, shelf, models, tmp_path):
    assert "ends in .html" in " ".join(call("report", shelf, "-o", tmp_path / "r.csv").err.replace("│", " ").split())
    assert call("report", shelf).code == 2
    assert call("report", shelf, "-o", tmp_path / "r.html", "--train", models / "orders.csv").code == 2
    none = call("report", shelf, "-o", tmp_path / "r.html", "--test", models / "none.csv")
    assert (none.code, "none.csv holds no basket" in none.err) == (1, True)
    strange = call("report", shelf, "-o", tmp_path / "r.html", "--test", models / "strange.csv")
    assert "unknown label 'ale'" in strange.err
    assert not list(tmp_path.iterdir())
    skipped = call("report", shelf, "-o", tmp_path / "r.html", "--test", models / "strange.csv", "--unknown", "skip")
    assert skipped.code == 0


def test_many_sizes_share_columns():
    p = np.full(100, 0.01)
    columns = size_columns(p, np.arange(10, 50))
    assert [columns[0]["name"], columns[-1]["name"]] == ["0–2", "99–101"]
    assert len(columns) <= 40
    assert sum(column["model"] for column in columns) == pytest.approx(1)
    assert sum(column["observed"] for column in columns) == pytest.approx(1)
    assert sum(column["tick"] for column in columns) <= 12
    assert [column["name"] for column in size_columns(np.array([0.0, 1.0]))] == ["1"]


def test_it_fits_the_screen_and_asks_for_nothing(call, models, mixture, tmp_path):
    playwright = pytest.importorskip("playwright.sync_api")
    if shutil.which("chromium") is None:
        pytest.skip("needs chromium")
    call("report", models / "shelf.safetensors", "-o", tmp_path / "a.html", "--test", models / "orders.csv")
    call("report", mixture, "-o", tmp_path / "b.html")
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, width in product(("a.html", "b.html"), (390, 820, 1280)):
            page, asked, said = browser.new_page(viewport={"width": width, "height": 900}), [], []
            page.on("request", lambda request, asked=asked: asked.append(request.url))
            page.on("console", lambda message, said=said: said.append(message.text))
            page.goto((tmp_path / name).as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
            assert (asked, said) == ([(tmp_path / name).as_uri()], [])
        browser.close()


def test_what_has_changed_since_another_version(call, models, tmp_path):
    """Missions, newcomers and items as the two models have them, and hit rates of both by week on the items that both have."""
    old = ndpp.load(models / "trips.safetensors")
    kept = old.remove(["jam"])
    new = kept.framed(kept.frame._replace(weights=np.array([0.2, 0.2, 0.6]))).add_items({HOSTILE[0]: ["tea"]}, 0.05)
    ndpp.save(old, tmp_path / "old.safetensors")
    ndpp.save(new, tmp_path / "new.safetensors")
    lines = ["basket,item,when"]
    for i, basket in enumerate(old.remove(["jam"]).sample(400, size=3, rng=0).to_lists()):
        lines += [f"{i},{[n for n in old.labels if n != 'jam'][k]},2026-03-{1 + i // 50:02d} 10:00" for k in basket]
    (tmp_path / "orders.csv").write_text("\n".join(lines))
    words = ["--since", tmp_path / "old.safetensors", "--test", tmp_path / "orders.csv", "--time", "when"]
    done = call("report", tmp_path / "new.safetensors", "-o", tmp_path / "r.html", *words)
    assert done.code == 0, done.err
    page = page_of(tmp_path / "r.html")
    page.check_alone()
    assert f"What has changed since old.safetensors New items: {HOSTILE[0]}. Gone: jam." in page.text
    before, after = old.popularity[old.labels.index("rice")], new.popularity[new.labels.index("rice")]
    assert f"rice{before:.2%}{after:.2%}{after / before:.2f}×" in page.text.replace(" ", "")
    for one in answers.changes(new, old).missions:
        assert f"{one.name}{one.before:.2%}{one.now:.2%}".replace(" ", "") in page.text.replace(" ", "")
    orders = Orders.read(tmp_path / "orders.csv", time="when", labels=new.labels)
    weeks = by_week(new, old, orders)
    assert [(one["from"], one["n"], one["days"]) for one in weeks] == [(f"2026-03-0{i}", 50, 1) for i in range(1, 9)]
    shared = [name for name in old.labels if name != "jam"]
    alone = Orders.read(tmp_path / "orders.csv", time="when", labels=shared)
    rate = metrics.hit_rate_at(new.remove([HOSTILE[0]]), alone, 10, rng=0, n_boot=0).value
    assert np.mean([one["hit_rates"]["now"] for one in weeks]) == pytest.approx(rate)
    assert "Hit rate, day by day" in page.text
    assert "What has changed" not in page_of_plain(call, models, tmp_path).text


def page_of_plain(call, models, tmp_path):
    assert call("report", models / "trips.safetensors", "-o", tmp_path / "plain.html").code == 0
    return page_of(tmp_path / "plain.html")
