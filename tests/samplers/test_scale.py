"""Draws do not depend on who draws them: threads, processes or a cluster, workers killed along the way or not."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import joblib
import numpy as np
import pytest
from distributed import Client, LocalCluster

import only_posix
from ndpp import LowRankKernel
from ndpp.errors import BudgetExceededError, MissingExtraError, RowsUnavailableError
from ndpp.samplers import Exact, Walk, _dispatch
from ndpp.samplers._dispatch import dispatch
from patience import HANG_SECONDS, until

N, D = 1200, 4
KILLED_AFTER = 5
"""Marks of workers before one of them is killed."""


def factors() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    skew = rng.standard_normal((D, D))
    return rng.standard_normal((N, D)), np.eye(D) + skew - skew.T


@pytest.fixture(autouse=True)
def _streamed(monkeypatch) -> None:
    monkeypatch.setattr(sys.modules["ndpp.linalg.coordinates"], "DENSE_ENTRIES", 0)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A cluster whose workers begin with everything imported, where the system can do that."""
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    with (
        dask.config.set(
            {
                "distributed.worker.multiprocessing-method": method,
                "distributed.comm.timeouts.connect": HANG_SECONDS,
                "distributed.comm.timeouts.tcp": HANG_SECONDS,
            }
        ),
        LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def marker(marks: Path) -> Callable[[], None]:
    """Return a function by which a worker leaves a mark. From ``KILLED_AFTER`` marks on it waits until one of them is killed.

    It is defined here, so that it is pickled by value.
    """
    tester = os.getpid()

    def mark() -> None:
        if os.getpid() == tester:
            return
        number = len(list(marks.iterdir()))
        (marks / f"{number:06d}-{os.getpid()}").touch()
        while len(list(marks.iterdir())) >= KILLED_AFTER and not (marks.parent / "killed").exists():
            time.sleep(0.01)

    return mark


def marking_source(X: np.ndarray, marks: Path) -> Any:
    """A store whose readers leave marks."""
    mark = marker(marks)

    class Marking:
        shape, dtype = X.shape, X.dtype

        def blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
            yield slice(0, len(X)), X

        def rows(self, ids: np.ndarray) -> np.ndarray:
            mark()
            return X[ids]

    return Marking()


def processes(marks: Path) -> list[int]:
    """Return the processes that have left marks, in order."""
    return [int(path.name.split("-")[1]) for path in sorted(marks.iterdir())]


def killing(marks: Path) -> threading.Thread:
    """Kill a process that waits after ``KILLED_AFTER`` marks; let the others go on."""

    def kill() -> None:
        until(lambda: len(processes(marks)) >= KILLED_AFTER)
        dead = processes(marks)[-1]
        os.kill(dead, only_posix.KILL)
        (marks.parent / "killed").write_text(str(dead))

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    return thread


@pytest.fixture
def marks(tmp_path) -> Path:
    folder = tmp_path / "marks"
    folder.mkdir()
    return folder


def assert_killed(marks: Path) -> None:
    """A worker was killed in the middle: it had left marks, and others left more after it."""
    dead = int((marks.parent / "killed").read_text())
    assert dead in processes(marks)
    assert processes(marks)[-1] != dead


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_joblib_backends_draw_the_same(backend):
    X, W = factors()
    kernel = LowRankKernel(X, W)
    for sampler in (Exact.prepare(kernel, size=3, given=[5]), Walk.prepare(kernel, size=2, steps=3)):
        alone = sampler.sample(20, rng=7).baskets
        with joblib.parallel_config(backend=backend):
            assert sampler.sample(20, rng=7, n_jobs=2).baskets == alone


def test_processes_share_x_and_do_not_copy_it(tmp_path):
    """joblib maps large arrays into its workers; a memory map goes there by name."""
    X = np.random.default_rng(0).standard_normal((300_000, 4))
    mapped = np.memmap(tmp_path / "X", X.dtype, "w+", shape=X.shape)
    mapped[:] = X
    kernels = [LowRankKernel(source, np.eye(4)) for source in (X, mapped)]

    def kinds(kernel: LowRankKernel) -> tuple[str, str, bool]:
        leverage = kernel.coordinates.leverage
        return type(kernel.X).__name__, type(leverage).__name__, "coordinates" in vars(kernel)

    found = joblib.Parallel(n_jobs=2, backend="loky")(joblib.delayed(kinds)(kernel) for kernel in kernels)
    assert found == [("memmap", "memmap", True), ("FileRows", "memmap", True)]


def test_a_killed_process_is_replaced(marks):
    X, W = factors()
    sampler = Exact.prepare(LowRankKernel(marking_source(X, marks), W), size=2)
    alone = sampler.sample(48, rng=3).baskets
    thread = killing(marks)
    with joblib.parallel_config(backend="loky"):
        assert sampler.sample(48, rng=3, n_jobs=2).baskets == alone
    thread.join()
    assert_killed(marks)


def test_a_cluster_draws_the_same(client, marks, tmp_path):
    X, W = factors()
    twin = LowRankKernel(X, W)
    want = twin.sample(20, size=3, rng=5)
    remote = LowRankKernel(da.from_array(X, chunks=(250, D)).persist(), W)
    np.testing.assert_allclose(remote.coordinates.leverage, twin.coordinates.leverage, atol=1e-12)
    assert remote.sample(20, size=3, rng=5) == want  # rows fetched from the workers
    assert remote.sample(20, size=3, rng=5, n_jobs=client) == want  # and by workers from each other
    assert twin.sample(20, size=3, rng=5, n_jobs=client) == want
    with joblib.parallel_config(backend="dask"):
        assert twin.sample(20, size=3, rng=5, n_jobs=2) == want
    mapped = np.memmap(tmp_path / "X", X.dtype, "w+", shape=X.shape)
    mapped[:] = X
    assert LowRankKernel(mapped, W).sample(20, size=3, rng=5, n_jobs=client) == want
    assert (
        Walk.prepare(twin, size=2, steps=2).sample(9, rng=5, n_jobs=client).baskets
        == Walk.prepare(twin, size=2, steps=2).sample(9, rng=5).baskets
    )
    sampler = Exact.prepare(LowRankKernel(marking_source(X, marks), W), size=2)
    alone = sampler.sample(48, rng=3).baskets
    thread = killing(marks)
    assert sampler.sample(48, rng=3, n_jobs=client).baskets == alone
    thread.join()
    assert_killed(marks)


def test_a_worker_killed_while_preparing_and_while_rows_are_fetched(client, marks):
    (X, W), mark = factors(), marker(marks)

    def chunk(block_info: Any = None) -> np.ndarray:
        mark()
        begin, end = block_info[None]["array-location"][0]
        return X[begin:end]

    remote = da.map_blocks(chunk, chunks=((100,) * 12, (D,)), dtype=X.dtype, meta=np.empty((0, 0)))
    twin = LowRankKernel(X, W)
    thread = killing(marks)
    kernel = LowRankKernel(remote, W)
    thread.join()
    assert_killed(marks)
    np.testing.assert_array_equal(kernel.coordinates.to_q, LowRankKernel(remote, W).coordinates.to_q)
    assert kernel.sample(4, size=2, rng=1) == twin.sample(4, size=2, rng=1)
    kernel = LowRankKernel(remote.persist(), W)
    sampler = Exact.prepare(kernel, size=3)
    draws = sampler.stream(12, rng=2)
    found = [*next(draws).baskets]
    os.kill(next(iter(client.run(os.getpid).values())), only_posix.KILL)  # it holds chunks of X, which are made anew
    found += [basket for part in draws for basket in part.baskets]
    assert [basket.tolist() for basket in found] == twin.sample(12, size=3, rng=2).to_lists()


PEAK = """
import numpy as np, re, sys
from ndpp import LowRankKernel
from ndpp.samplers import Exact
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
Exact.prepare(LowRankKernel(np.eye(2000, 64, dtype=np.float32), np.eye(64)), size=5).sample(50, rng=0)
before = peak()
kernel = LowRankKernel(np.memmap(sys.argv[1], np.float32, "r", shape=(500_000, 64)), np.eye(64))
Exact.prepare(kernel, size=5).sample(100, rng=0)
print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_a_mapped_x_never_becomes_resident(tmp_path):
    """128 MB on disk: preparing and drawing take the leverage table, 12 MB, and a few blocks of 16 MB."""
    rng = np.random.default_rng(0)
    with open(tmp_path / "X", "wb") as file:
        for _ in range(5):
            file.write(rng.standard_normal((100_000, 64), dtype=np.float32).data)
    done = subprocess.run([sys.executable, "-c", PEAK, tmp_path / "X"], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 96


def broken(times: int) -> Callable[..., Iterator[int]]:
    """A pool that breaks after two batches, ``times`` times."""
    left = [times]

    def crew(draw: Callable[[int, range], int], shared: int, batches: list[range], n_jobs: int) -> Iterator[int]:
        for i, batch in enumerate(batches):
            if i == 2 and left[0]:
                left[0] -= 1
                raise BrokenExecutor
            yield draw(shared, batch)

    return crew


def test_batches_of_a_broken_pool_are_drawn_once_each(monkeypatch):
    batches = [range(i, i + 1) for i in range(9)]
    monkeypatch.setattr(_dispatch, "_in_workers", broken(3))
    assert list(dispatch(lambda shared, batch: shared + batch.start, 10, batches, 2)) == list(range(10, 19))
    monkeypatch.setattr(_dispatch, "_in_workers", broken(4))
    with pytest.raises(BrokenExecutor):
        list(dispatch(lambda shared, batch: shared, 10, [range(1)] * 30, 2))


def test_errors_travel_from_workers():
    def fail(error: Exception) -> None:
        raise error

    error = BudgetExceededError("too many", count=3, partial=[1])
    with pytest.raises(BudgetExceededError) as found:
        joblib.Parallel(n_jobs=2, backend="loky")(joblib.delayed(fail)(error) for _ in range(2))
    assert_same_error(found.value, error)
    for error in (MissingExtraError("rich", "cli", "A bar"), RowsUnavailableError("gone")):  # as it would travel
        assert_same_error(pickle.loads(pickle.dumps(error)), error)


def assert_same_error(found: Exception, error: Exception) -> None:
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert vars(found).items() >= {k: v for k, v in vars(error).items() if not k.startswith("__")}.items()
