"""The command where files that are open cannot be replaced or removed, as on Windows."""

from __future__ import annotations

import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="which files are open is read from /proc")


@pytest.fixture(autouse=True)
def _windows(monkeypatch: pytest.MonkeyPatch) -> None:
    import windows

    windows.imitate(monkeypatch)


@pytest.mark.parametrize("suffix", ["txt", "csv", "json", "parquet"])
def test_baskets_are_drawn_into_a_file_and_over_it(call, shelf, tmp_path, suffix):
    out = tmp_path / f"out.{suffix}"
    contents = []
    for _ in range(2):
        assert call("sample", shelf, "-n", 5, "--size", 2, "--seed", 1, "-o", out).code == 0
        contents.append(out.read_bytes())
    assert contents[0] == contents[1]
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


def test_a_model_is_fitted_and_told_of(call, models, tmp_path):
    out = tmp_path / "model.safetensors"
    words = ["fit", models / "orders.csv", "-o", out, "--max-epochs", 2, "--rank", 4, "--jobs", 1, "--test", 20]
    for _ in range(2):
        assert call(*words).code == 0
    assert call("info", out, "-o", tmp_path / "about.txt").code == 0
    assert b"\r" not in (tmp_path / "about.txt").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "about.txt", "model.safetensors", "model.test.csv", "model.train.csv"
    ]  # fmt: skip
