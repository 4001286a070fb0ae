"""The progress bar: on standard error, only where it is asked for, and named as asked."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import ndpp
from ndpp._progress import ProgressBar, counted, progress_bar
from ndpp.errors import MissingExtraError

KERNEL = ndpp.LowRankKernel(np.eye(4), np.eye(4))


def test_a_bar_counts_on_standard_error(capsys):
    with progress_bar(10, "drawing", done=3, left="at most") as bar:
        bar.advance(4)
        bar.advance()
        bar.tell("nearly there")
    out, err = capsys.readouterr()
    assert out == ""
    assert "nearly there" in err
    assert "8/10" in err
    assert "at most" in err


def test_a_bar_that_is_not_asked_for_shows_nothing(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich", None)  # nor does it need the package
    with progress_bar(10, "drawing", show=False) as bar:
        bar.advance()
        bar.tell("nothing")
    assert bar == ProgressBar()
    assert list(counted(iter([[1], [2, 3]]), 3, False, "drawing")) == [[1], [2, 3]]
    assert capsys.readouterr() == ("", "")


def test_a_bar_needs_rich(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich", None)
    with pytest.raises(MissingExtraError, match=r"A progress bar needs .*'ndpp\[cli\]'"), progress_bar(1, "drawing"):
        pass


@pytest.mark.parametrize(("show", "named"), [(True, "sampling"), ("long chains", "long chains")])
def test_samplers_show_how_far_they_are(capsys, show, named):
    drawn = ndpp.samplers.Exact.prepare(KERNEL).sample(20, rng=0, progress=show)
    err = capsys.readouterr().err
    assert named in err
    assert "20/20" in err
    assert drawn.baskets == ndpp.samplers.Exact.prepare(KERNEL).sample(20, rng=0).baskets
