"""Subsets of any size: the greedy set against a plain one, in memory, on disk and in one pass, with limits and as exact samples."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch

import ndpp
from ndpp.errors import (
    ImpossibleLimitError,
    InvalidInputError,
    ModelFileError,
    OtherSettingsError,
)
from ndpp.inference import coverage, volume
from ndpp.select import subset
from patience import until


def plain(F: np.ndarray, k: int, ridge: float, given: tuple[int, ...] = (), allowed=None) -> list[int]:
    """The greedy set from determinants alone."""
    chosen = list(given)
    for _ in range(k):
        G = np.eye(F.shape[1]) + F[chosen].T @ F[chosen] / ridge
        gains = np.einsum("ij,ij->i", F @ np.linalg.inv(G), F)
        gains[chosen] = -np.inf
        if allowed is not None:
            gains[~allowed(chosen)] = -np.inf
        chosen.append(int(gains.argmax()))
    return chosen[len(given) :]


def objective(F: np.ndarray, items: np.ndarray, ridge: float) -> float:
    return float(np.linalg.slogdet(np.eye(F.shape[1]) + F[items].T @ F[items] / ridge)[1])


def vectors(n: int = 300, d: int = 6, seed: int = 0) -> np.ndarray:
    """Vectors of which some are long, in directions that matter to different degrees."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) * np.linspace(0.2, 2, d) * rng.gamma(2.0, size=(n, 1))


@pytest.fixture
def small_pools(monkeypatch):
    """Pools of a few items and blocks of a few rows, so that small problems take many rounds."""
    monkeypatch.setattr(volume, "LEAST_POOL", 16)
    monkeypatch.setattr(volume, "BLOCK_ENTRIES", 100)


@pytest.mark.usefixtures("small_pools")
@pytest.mark.parametrize("ridge", [1e-6, 0.1, 10.0, 1e6, 1e14])
def test_the_plain_greedy_set(ridge):
    F = vectors()
    assert subset(F, 100, ridge=ridge).tolist() == plain(F, 100, ridge)
    given = (5, 250, 17)
    assert subset(F, 50, ridge=ridge, given=given).tolist() == plain(F, 50, ridge, given)


@pytest.mark.usefixtures("small_pools")
def test_every_size_and_prefix():
    F = vectors(60, 3)
    whole = subset(F, 60)
    assert sorted(whole.tolist()) == list(range(60))
    assert subset(F, 0).tolist() == []
    for k in (1, 3, 4, 31):
        assert subset(F, k).tolist() == whole[:k].tolist()


def test_quality_multiplies_vectors_and_the_ridge_follows_them():
    F, q = vectors(), np.random.default_rng(1).gamma(2.0, size=300)
    rows = F * q[:, None]
    assert subset(F, 40, quality=q).tolist() == plain(rows, 40, float((rows**2).mean()))


@pytest.mark.usefixtures("small_pools")
def test_equal_and_zero_vectors():
    """Vectors that are repeated come in turn, zeros last, and nothing is refused."""
    F = np.repeat(np.vstack([np.eye(4), np.zeros((1, 4))]), 10, axis=0)
    items = subset(F, 50)
    assert [sorted((items[4 * i : 4 * i + 4] // 10).tolist()) for i in range(10)] == [[0, 1, 2, 3]] * 10
    assert items[:4].tolist() == [0, 10, 20, 30]
    assert sorted(items[40:].tolist()) == list(range(40, 50))
    assert subset(np.zeros((5, 2)), 5).tolist() == [0, 1, 2, 3, 4]
    for ridge in (1e-300, 1e-14, 1e300):
        assert len(set(subset(F, 50, ridge=ridge).tolist())) == 50


def test_pools_hold_the_largest_gains():
    gains = np.array([1.0, 3.0, 2.0, 3.0, 2.0, -np.inf])
    assert [(ids.tolist(), rest) for ids, rest in (volume.pool(gains, size) for size in (1, 2, 3, 4, 6))] == [
        ([1], 3.0), ([1, 3], 2.0), ([1, 2, 3], 2.0), ([1, 2, 3, 4], 1.0), ([0, 1, 2, 3, 4, 5], -np.inf),
    ]  # fmt: skip


# -- where vectors come from --------------------------------------------------------------------------------------------------


def sources(F: np.ndarray, folder) -> dict[str, object]:
    """The same vectors, in every form."""
    np.save(folder / "F.npy", F)
    kind = pyarrow.list_(pyarrow.float32(), F.shape[1])
    column = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(F.ravel()), type=kind)
    pyarrow.parquet.write_table(pyarrow.table({"v": column}), folder / "F.parquet", row_group_size=70)
    read = pyarrow.parquet.read_table(folder / "F.parquet")
    return {
        "memory map": np.load(folder / "F.npy", mmap_mode="r"),
        "parquet": read["v"],
        "sliced": read["v"].slice(100),
        "lists": pyarrow.chunked_array([pyarrow.array(F[:7].tolist()), pyarrow.array(F[7:].tolist())]),
        "pandas": read.to_pandas()["v"],
        "tensor": torch.from_numpy(F),
    }


@pytest.mark.usefixtures("small_pools")
@pytest.mark.parametrize("form", ["memory map", "parquet", "sliced", "lists", "pandas", "tensor"])
def test_every_form(form, tmp_path):
    F = vectors().astype(np.float32)
    rows, source = F[100:] if form == "sliced" else F, sources(F, tmp_path)[form]
    for options in ({}, {"chunks": 3}, {"objective": "coverage"}):
        found = subset(source, 40, **options)
        assert isinstance(found, torch.Tensor) == (form == "tensor")
        assert found.tolist() == subset(rows, 40, **options).tolist()


def test_a_store_that_goes_away(tmp_path):
    F = vectors(5000).astype(np.float32)
    source = sources(F, tmp_path)["memory map"]
    os.truncate(tmp_path / "F.npy", 1000)
    with pytest.raises(InvalidInputError, match="it has 1000"):
        subset(source, 40)


@pytest.mark.parametrize("d", [4, 20])
@pytest.mark.parametrize("order", ["shuffled", "sorted by length"])
def test_one_pass_is_close_to_plain_greedy(d, order):
    F = vectors(4000, d)
    if order != "shuffled":
        F = F[np.argsort((F**2).sum(axis=1))]
    ridge, given = float((F**2).mean()), [3, 3999]
    whole = objective(F, [*given, *subset(F, 400, given=given)], ridge)
    once = subset(F, 400, ridge=ridge, given=given, chunks=20)
    assert len(set(once.tolist()) - set(given)) == 400
    random = np.random.default_rng(0).choice(4000, 402, replace=False)
    assert 0.99 * whole <= objective(F, [*given, *once], ridge) <= whole * (1 + 1e-9) or order != "shuffled"
    assert objective(F, random, ridge) < 0.99 * whole  # a random set is not
    assert len(set(subset(F, 4000, chunks=7).tolist())) == 4000


# -- limits ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_pools")
def test_quotas():
    F, group = vectors(), np.arange(300) % 5
    limits = [
        ndpp.Limit(np.flatnonzero(group == 0).tolist(), least=30, name="a"),
        ndpp.Limit(group == 1, most=4, name="b"),
        ndpp.Limit(np.flatnonzero(group == 2).tolist(), least=10, most=12),
    ]

    def allowed(chosen: list[int]) -> np.ndarray:
        counts = np.bincount(group[chosen], minlength=5)
        missing = np.maximum([30, 0, 10, 0, 0] - counts, 0)
        left = 63 - len(chosen)
        return (missing > 0 if missing.sum() == left else counts < [300, 4, 12, 300, 300])[group]

    found = subset(F, 60, ridge=0.5, limits=limits, given=[1, 6, 0])
    assert found.tolist() == plain(F, 60, 0.5, (1, 6, 0), allowed)
    counts = np.bincount(group[[1, 6, 0, *found]], minlength=5)
    assert counts[0] == 30  # it binds, and so do the others
    assert counts[1] == 4
    assert 10 <= counts[2] <= 12


@pytest.mark.parametrize(
    ("limits", "error", "message"),
    [
        ([ndpp.Limit([0, 1], most=1), ndpp.Limit([1, 2], most=1)], InvalidInputError, "do not overlap"),
        ([ndpp.Limit(np.arange(20.0), most=1)], InvalidInputError, "must count"),
        ([ndpp.Limit(range(16), most=3)], ImpossibleLimitError, "between 0 and 7 further"),
        ([ndpp.Limit(range(16), least=9)], ImpossibleLimitError, "between 9 and 20 further"),
        ([ndpp.Limit([0], least=2)], ImpossibleLimitError, "exactly 2|at least 2"),
    ],
)
def test_limits_that_are_refused(limits, error, message):
    with pytest.raises(error, match=message):
        subset(vectors(20), 8, limits=limits)


# -- samples ----------------------------------------------------------------------------------------------------------------------


def test_samples_have_the_law_of_the_kernel_with_its_ridge():
    """They are those of a kernel with a background, whose law is that of the determinants."""
    F, q, ridge = vectors(6, 2), np.linspace(0.5, 2, 6), 0.5
    kernel = ndpp.LowRankKernel(F * q[:, None], background=np.full(6, ridge))
    for seed in range(3):
        drawn = subset(F, 4, quality=q, ridge=ridge, method="sample", rng=seed)
        assert drawn.tolist() == sorted(kernel.sample(1, size=4, rng=seed)[0].tolist())
    L = ridge * np.eye(6) + np.outer(q, q) * (F @ F.T)
    sets = list(itertools.combinations(range(6), 4))
    weights = np.array([np.linalg.det(L[np.ix_(one, one)]) for one in sets])
    draws = [tuple(sorted(draw)) for draw in kernel.sample(3000, size=4, rng=0).to_lists()]
    counts = np.array([draws.count(one) for one in sets])
    expected = 3000 * weights / weights.sum()
    assert counts.sum() == 3000
    assert ((counts - expected) ** 2 / expected).sum() < 40  # 14 degrees of freedom: once in 4,000 seeds
    assert ((counts - 200) ** 2 / 200).sum() > 40  # and uniform sets would not pass


def test_samples_keep_given_items_and_limits():
    F = vectors(50)
    found = subset(F, 20, method="sample", given=[4], limits=ndpp.Limit(range(25), most=3), rng=0)
    assert len(found) == 20
    assert 4 not in found
    assert np.count_nonzero(found < 25) <= 2


# -- coverage ---------------------------------------------------------------------------------------------------------------------


def plain_cover(F: np.ndarray, k: int, q: np.ndarray, given: tuple[int, ...], groups: list[np.ndarray]) -> list[int]:
    """The greedy set from the objective alone."""
    u = F / np.linalg.norm(F, axis=1)[:, None]
    block = np.empty(len(F), int)
    for b, ids in enumerate(groups):
        block[ids] = b
    S = np.maximum(u @ u.T, 0) * q * (block[:, None] == block)
    chosen = list(given)
    for _ in range(k):
        covered = S[:, chosen].max(axis=1, initial=0.0)
        gains = np.maximum(S - covered[:, None], 0).sum(axis=0)
        gains[chosen] = -np.inf
        chosen.append(int(gains.argmax()))
    return chosen[len(given) :]


def test_coverage(monkeypatch):
    F, q = vectors(200), np.random.default_rng(2).gamma(5.0, size=200)
    assert subset(F, 30, objective="coverage").tolist() == plain_cover(F, 30, np.ones(200), (), [np.arange(200)])
    monkeypatch.setattr(coverage, "BLOCK", 30)
    groups = coverage.neighbours(F)
    assert sorted(np.concatenate(groups).tolist()) == list(range(200))
    assert max(map(len, groups)) <= 30
    given = (3, 99)
    found = subset(F, 60, objective="coverage", quality=q, given=given)
    assert found.tolist() == plain_cover(F, 60, q, given, groups)
    assert sorted(subset(F, 198, objective="coverage", given=given).tolist()) == sorted(set(range(200)) - set(given))
    skewed = np.vstack([np.tile(F[:1], (150, 1)), F[150:]])  # one block has nothing left to cover after one item
    assert len(set(subset(skewed, 120, objective="coverage").tolist())) == 120


# -- interrupted runs -----------------------------------------------------------------------------------------------------------


SCRIPT = """
import sys, threading, numpy as np
from ndpp.inference import volume
from ndpp.select import subset
volume.LEAST_POOL = 64
go_on = volume.Volume._round
def hang(self, end):
    if len(self.items) > 60:
        threading.Event().wait()
    return go_on(self, end)
if sys.argv[2] == "hang":
    volume.Volume._round = hang
print(*subset(np.random.default_rng(0).standard_normal((3000, 20)), 700, checkpoint=sys.argv[1]))
"""


def test_a_run_that_is_killed_goes_on(tmp_path):
    path = tmp_path / "run.json"
    command = [sys.executable, "-c", SCRIPT, str(path)]
    process = subprocess.Popen([*command, "hang"])
    try:
        until(lambda: path.exists() and len(json.loads(path.read_text())["items"]) > 60)
    finally:
        process.kill()
        process.wait()
    known = json.loads(path.read_text())["items"]
    assert 60 < len(known) < 700
    done = subprocess.run([*command, "go on"], capture_output=True, text=True, check=True)
    items = list(map(int, done.stdout.split()))
    assert not path.exists()
    assert items[: len(known)] == known
    assert items == subset(np.random.default_rng(0).standard_normal((3000, 20)), 700).tolist()


def test_checkpoints_of_other_runs_are_refused(tmp_path):
    F, path = vectors(), tmp_path / "run.json"
    record = {"data": 0, "k": 9, "ridge": 1.0, "given": [], "items": [1]}
    path.write_text(json.dumps(record))
    with pytest.raises(OtherSettingsError, match="another data"):
        subset(F, 9, ridge=1.0, checkpoint=path)
    path.write_text("[]")
    with pytest.raises(ModelFileError, match="not a checkpoint of a subset"):
        subset(F, 9, checkpoint=path)
    with pytest.raises(FileNotFoundError):
        subset(F, 9, checkpoint=tmp_path / "missing" / "run.json")


def test_progress_is_shown(capsys):
    subset(vectors(), 9, progress=True)
    assert "9/9" in capsys.readouterr().err


# -- what is refused --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": -1}, "k must be"),
        ({"k": 21}, "k must be between 0 and 20"),
        ({"k": 20, "given": [1]}, "k must be between 0 and 19"),
        ({"k": 2.5}, "k must be an integer"),
        ({"ridge": 0.0}, "ridge must be a number above 0"),
        ({"ridge": np.nan}, "ridge must be a number above 0"),
        ({"ridge": "auto"}, "ridge must be a number above 0"),
        ({"objective": "volume"}, "objective must be one of logdet, coverage"),
        ({"method": "best"}, "method must be one of map, sample"),
        ({"quality": [1.0]}, "quality must have 20 entries"),
        ({"quality": np.full(20, -1.0)}, "quality must be finite and ≥ 0"),
        ({"given": [1, 1]}, "given must not repeat"),
        ({"chunks": 0}, "chunks must be"),
        ({"chunks": 3, "limits": ndpp.Limit([0], most=1)}, "limits cannot be combined with chunks"),
        ({"chunks": 3, "method": "sample"}, 'chunks cannot be combined with method="sample"'),
        ({"ridge": 1.0, "objective": "coverage"}, 'ridge cannot be combined with objective="coverage"'),
        ({"method": "sample", "objective": "coverage"}, "method is for objective"),
        ({"F": np.ones(4)}, r"F must have shape \(n, d\)"),
        ({"F": np.ones((4, 0))}, "F must have shape"),
        ({"F": [["a"]]}, "F must be an array of real numbers"),
        ({"F": pyarrow.array([[1.0], [1.0, 2.0]])}, "F must be a column of vectors of one length"),
        ({"F": pyarrow.array([[1.0], None])}, "F must be a column of vectors of one length"),
        ({"F": torch.ones((4, 2), requires_grad=True)}, r"F\.detach\(\)"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        subset(**({"F": vectors(20), "k": 2} | arguments))


@pytest.mark.parametrize("options", [{}, {"chunks": 2}, {"objective": "coverage"}, {"method": "sample"}])
def test_what_is_not_finite_is_refused(options):
    for bad in (np.nan, np.inf, 1e200):
        F = vectors(20)
        F[13, 2] = bad
        with pytest.raises(InvalidInputError, match="finite"):
            subset(F, 4, **options)


@pytest.mark.usefixtures("small_pools")
def test_the_code_for_gpus_on_a_cpu(tmp_path):
    """What runs on a device, with tensors that are on none."""
    F, limit = vectors(), ndpp.Limit(range(150), least=20, most=25)
    for options in ({}, {"limits": limit}, {"given": [3, 7]}, {"quality": torch.arange(300.0)}, {"chunks": 4}):
        assert subset(F, 60, device="cpu:0", **options).tolist() == subset(F, 60, **options).tolist()
    source = sources(F.astype(np.float32), tmp_path)["memory map"]
    for options in ({}, {"chunks": 4}):
        assert subset(source, 60, device="cpu:0", **options).tolist() == subset(source, 60, **options).tolist()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu():
    F = vectors(20_000, 16)
    whole = subset(F, 500).tolist()
    found = subset(torch.from_numpy(F).cuda(), 500)
    assert found.is_cuda
    assert found.tolist() == subset(F, 500, device="cuda").tolist() == whole
