"""The demonstration, made small."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'ndpp[learn]'")

import ndpp
from ndpp_experiments import demo


def test_demo_prints_what_it_learned_and_saves_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "made" / "here"
    mixture = demo.run(folder, n_train=1500, n_missions=6, rank=8, max_epochs=1, n_draws=20, progress=False)
    out = capsys.readouterr().out
    for words in (
        "shopping trips",
        "independent items",
        "Why people come",
        "go together",
        "by ties",
        "drawn:",
        "A dinner for at most 15 dollars",
        "Saved",
    ):
        assert words in out
    assert all(item in out for basket in demo.BASKETS for item in basket)
    assert (folder / "map.png").read_bytes().startswith(b"\x89PNG")
    np.testing.assert_array_equal(ndpp.load(folder / "groceries.safetensors").odds, mixture.odds)
