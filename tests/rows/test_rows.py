"""Row sources: the same answers as from an array, and every way a store can fail is named by the rows it concerns."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import h5py
import numpy as np
import pytest
from safetensors.numpy import load_file

import ndpp
import only_posix
from ndpp import LowRankKernel
from ndpp.errors import InvalidInputError, InvalidKernelError, ModelFileError, PrecisionError, RowsUnavailableError
from ndpp.laws import files as model_files
from ndpp.rows import FileRows, Rows, RowSource, SelectedRows, Stacked, as_rows

N, D = 900, 5


def factors(dtype: type = np.float32) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    skew = rng.standard_normal((D, D))
    return rng.standard_normal((N, D)).astype(dtype), np.eye(D) + skew - skew.T


class Own:
    """A user's store, with nothing but what the protocol asks for."""

    def __init__(self, X: np.ndarray, step: int = 128) -> None:
        self.X, self.step, self.shape, self.dtype = X, step, X.shape, X.dtype

    def blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        for start in range(0, len(self.X), self.step):
            block = self.X[start : start + self.step]
            yield slice(start, start + len(block)), block

    def rows(self, ids: np.ndarray) -> np.ndarray:
        return self.X[ids]


def memmap(X: np.ndarray, folder: Path) -> np.memmap:
    out = np.lib.format.open_memmap(folder / "X.npy", "w+", X.dtype, X.shape)
    out[:] = X
    return out


def hdf5(X: np.ndarray, folder: Path) -> Any:
    return h5py.File(folder / "X.h5", "w").create_dataset("deep/X", data=X, chunks=(64, 2), compression="gzip")


def zarr_array(X: np.ndarray, folder: Path) -> Any:
    import zarr  # takes a second

    out = zarr.create_array(store=folder / "X.zarr", shape=X.shape, chunks=(100, 3), dtype=X.dtype)
    out[:] = X
    return out


SOURCES: dict[str, Callable[[np.ndarray, Path], Any]] = {
    "memory map": memmap,
    "HDF5": hdf5,
    "Zarr": zarr_array,
    "dask": lambda X, _: da.from_array(X, chunks=(200, 2)),
    "own store": lambda X, _: Own(X),
    "stacked": lambda X, _: Stacked([as_rows(Own(part)) for part in np.array_split(X, 3)]),
}


@pytest.fixture(params=SOURCES)
def source(request, tmp_path) -> Callable[[np.ndarray], Any]:
    return lambda X: SOURCES[request.param](X, tmp_path)


@pytest.fixture
def streamed(monkeypatch) -> None:
    """Treat the small X of a test as a large one: never held as a whole, in several blocks."""
    monkeypatch.setattr(sys.modules["ndpp.linalg.coordinates"], "DENSE_ENTRIES", 0)
    monkeypatch.setattr(sys.modules["ndpp.rows.base"], "BLOCK_BYTES", 3000)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_come_back_as_they_are(source, dtype):
    X, _ = factors(dtype)
    rows = as_rows(source(X))
    assert isinstance(rows, Rows)
    assert (rows.shape, rows.dtype, len(rows)) == (X.shape, X.dtype, N)
    np.testing.assert_array_equal(rows.read(), X)
    np.testing.assert_array_equal(np.asarray(rows), X)
    ids = np.array([899, 0, 450, 0, 201])
    np.testing.assert_array_equal(rows.take(ids), X[ids])
    assert rows.take(np.empty(0, np.int64)).shape == (0, D)
    some = np.flatnonzero(np.arange(N) % 3)
    np.testing.assert_array_equal(SelectedRows(rows, some).read(), X[some])
    np.testing.assert_array_equal(SelectedRows(rows, some[-20:]).read(), X[some[-20:]])
    np.testing.assert_array_equal(SelectedRows(rows, some).take(ids[2:3]), X[some[ids[2:3]]])


def test_integers_become_doubles(source):
    X = np.arange(N * D).reshape(N, D) % 7
    rows = as_rows(source(X))
    assert rows.dtype == np.float64
    np.testing.assert_array_equal(rows.read(), X)


def assert_same_answers(kernel: LowRankKernel, twin: LowRankKernel) -> None:
    assert kernel.sample(8, size=3, rng=1) == twin.sample(8, size=3, rng=1)
    assert kernel.sample(2, rng=2) == twin.sample(2, rng=2)
    assert kernel.rank == twin.rank
    assert kernel.log_normalizer() == pytest.approx(twin.log_normalizer(), abs=1e-9)
    np.testing.assert_allclose(kernel.inclusion_probabilities(3), twin.inclusion_probabilities(3), atol=1e-12)
    np.testing.assert_allclose(kernel.size_distribution(), twin.size_distribution(), atol=1e-12)


@pytest.mark.usefixtures("streamed")
def test_a_kernel_gives_the_same_answers(source):
    """Doubles: to compile a sampler of any size for rows in single precision takes seconds, and ``samplers`` has other tests of them."""
    X, W = factors(np.float64)
    labels = [f"item {i}" for i in range(N)]
    kernel, twin = LowRankKernel(source(X), W, labels=labels), LowRankKernel(X, W, labels=labels)
    assert kernel.coordinates.Q is None
    assert_same_answers(kernel, twin)
    assert kernel.sample(3, size=2, rng=0).labels == tuple(labels)
    assert_same_answers(kernel.restrict(range(300, 800)), twin.restrict(range(300, 800)))
    assert_same_answers(kernel.restrict(range(10, 40)), twin.restrict(range(10, 40)))
    assert_same_answers(kernel.exclude([3, 500]), twin.exclude([3, 500]))
    given = kernel.sample(4, size=3, given=[7], exclude=[8], rng=3)
    assert given == twin.sample(4, size=3, given=[7], exclude=[8], rng=3)
    part, whole = kernel.condition([7, 600]), twin.condition([7, 600])
    assert part.log_det([1, 899]) == pytest.approx(whole.log_det([1, 899]), abs=1e-9)
    assert ndpp.greedy_map(kernel, 3).tolist() == ndpp.greedy_map(twin, 3).tolist()
    np.testing.assert_allclose(ndpp.next_item_scores(kernel, [7]), ndpp.next_item_scores(twin, [7]), rtol=1e-9)
    np.testing.assert_allclose(kernel.to_dense(), twin.to_dense(), atol=1e-12)


@pytest.mark.usefixtures("streamed")
def test_badly_scaled_columns_take_the_second_pass(source):
    """The condition of X is 10⁸: block factors instead of XᵀX, computed where the blocks are."""
    X, W = factors(np.float64)
    X = X @ (np.linalg.qr(np.random.default_rng(1).standard_normal((D, D)))[0] * np.geomspace(1, 1e-8, D))
    kernel, twin = LowRankKernel(source(X), W), LowRankKernel(X, W)
    assert kernel.rank == D
    assert kernel.log_normalizer(3) == pytest.approx(twin.log_normalizer(3), abs=1e-9)
    np.testing.assert_allclose(kernel.coordinates.leverage, twin.coordinates.leverage, atol=1e-6)


def test_a_small_source_is_read_once_and_kept(source):
    X, W = factors()
    kernel = LowRankKernel(source(X), W)
    np.testing.assert_array_equal(kernel.coordinates.Q, LowRankKernel(X, W).coordinates.Q)


def test_what_is_no_source_is_an_array(tmp_path):
    X, W = factors()
    assert as_rows(X) is None
    assert as_rows(X.tolist()) is None
    assert isinstance(Own(X), RowSource)
    changed = np.memmap(memmap(X, tmp_path).filename, X.dtype, "c", 128, X.shape)
    changed[0] = 0.0  # copy on write: the change is in memory and not in the file
    np.testing.assert_array_equal(LowRankKernel(changed, W).X[0], np.zeros(D))
    assert as_rows(np.asfortranarray(changed)) is None
    with pytest.raises(InvalidInputError, match=r"type Half has blocks\(\), but not all of shape, dtype"):
        LowRankKernel(type("Half", (), {"shape": (3, 2), "blocks": None})(), W)


def test_a_run_of_rows_of_a_memory_map(tmp_path):
    X, _ = factors()
    part = as_rows(memmap(X, tmp_path)[100:300])
    assert isinstance(part, FileRows)
    np.testing.assert_array_equal(part.read(), X[100:300])
    assert as_rows(memmap(X, tmp_path)[:, 1:]) is None  # rows do not follow each other: an array like any other
    np.testing.assert_array_equal(LowRankKernel(memmap(X, tmp_path)[:, 1:], np.eye(D - 1)).X, X[:, 1:])


@pytest.mark.usefixtures("streamed")
def test_files_are_opened_again_and_never_pickled(tmp_path):
    X, W = factors()
    for source in (memmap(X, tmp_path), hdf5(X, tmp_path), zarr_array(X, tmp_path)):
        kernel = LowRankKernel(source, W)
        if isinstance(source, h5py.Dataset):
            source.file.flush()
        rows = pickle.dumps(kernel.X)
        assert len(rows) < 3000 < X.nbytes
        again = pickle.loads(pickle.dumps(kernel))
        assert again.sample(5, size=2, rng=0) == kernel.sample(5, size=2, rng=0)


def test_to_dense_refuses_what_cannot_be_held(tmp_path):
    n = 10**8
    with open(tmp_path / "X", "wb") as file:
        file.truncate(4 * n)
    big = FileRows(tmp_path / "X", (n, 1), np.float32)  # a sparse file: nothing of it is read
    kernel = object.__new__(LowRankKernel)
    object.__setattr__(kernel, "X", big)
    with pytest.raises(InvalidInputError, match=r"8e\+07 GB for 100000000 items"):
        kernel.to_dense()


# -- what can go wrong -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("streamed")
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_entry_that_is_not_finite_is_named_with_its_rows(source, value):
    X, W = factors()
    X[777, 3] = value
    with pytest.raises(
        InvalidInputError, match=r"rows \d+–\d+ have NaN or infinite entries, the first at \[777, 3\]"
    ) as error:
        LowRankKernel(source(X), W)
    first, last = map(int, str(error.value).split("rows ")[1].split(" ")[0].split("–"))
    assert first <= 777 <= last < N
    assert last - first < N // 2


@pytest.mark.usefixtures("streamed")
def test_entries_whose_squares_overflow(source):
    X, W = factors(np.float64)
    X[5] = 1e200
    with pytest.raises(PrecisionError, match="overflow; rescale X"):
        LowRankKernel(source(X), W)


class Wrong(Own):
    """A store whose blocks, from one on, are not what they should be."""

    def __init__(self, X: np.ndarray, change: Callable[[slice, np.ndarray], tuple[slice, np.ndarray]]) -> None:
        super().__init__(X)
        self.change = change

    def blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        for where, block in super().blocks():
            yield self.change(where, block) if where.start >= 256 else (where, block)


WRONG = {
    "narrow": (lambda where, block: (where, block[:, 1:]), r"rows 256–383 of X should have shape \(128, 5\); .* shape \(128, 4\)"),
    "short": (lambda where, block: (where, block[1:]), r"rows 256–383 of X should have shape \(128, 5\); .* shape \(127, 5\)"),
    "flat": (lambda where, block: (where, block[0]), r"should have shape \(128, 5\); .* shape \(5,\)"),
    "skipping": (lambda where, block: (slice(where.start + 1, where.stop + 1), block), "expected row 256 next, Wrong gave rows 257–384"),
    "complex": (lambda where, block: (where, block * 1j), "matrix of real numbers; the store's entries are complex"),
}  # fmt: skip


@pytest.mark.usefixtures("streamed")
@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_blocks_that_do_not_fit_together(change, message):
    X, W = factors()
    with pytest.raises(InvalidInputError, match=message):
        LowRankKernel(Wrong(X, change), W)


def _lost(where: slice, block: np.ndarray) -> tuple[slice, np.ndarray]:
    raise ConnectionResetError("the disk was pulled")


@only_posix.open_files
@pytest.mark.usefixtures("streamed")
def test_a_store_that_disappears_while_it_is_streamed():
    X, W = factors()
    with pytest.raises(
        RowsUnavailableError, match="rows from 256 on of X could not be read from Wrong: ConnectionResetError: the disk"
    ):
        LowRankKernel(Wrong(X, _lost), W)


@pytest.mark.usefixtures("streamed")
def test_blocks_that_end_early_and_rows_of_another_width():
    X, W = factors()
    store = Own(X)
    store.shape = (N + 1, D)
    with pytest.raises(InvalidInputError, match=r"X should have 901 rows; the blocks of Own end after 900"):
        LowRankKernel(store, W)
    store.shape = (N, D)
    kernel = LowRankKernel(store, W)
    store.rows = lambda ids: X[ids, 1:]
    with pytest.raises(InvalidInputError, match=r"3 rows of X should have shape \(3, 5\); Own gave \(3, 4\)"):
        kernel.log_det([1, 2, 3])


@pytest.mark.usefixtures("streamed")
def test_dask_chunks_that_lie_about_their_width():
    X, W = factors()
    parts = [
        da.from_array(X[:400], chunks=(200, D)),
        da.from_array(X[400:600], chunks=(200, D)),
        da.from_array(X[600:], chunks=-1),
    ]
    parts[1] = parts[1].map_blocks(lambda block: block[:, 1:], dtype=X.dtype, chunks=parts[1].chunks)
    with pytest.raises(InvalidInputError, match=r"rows 400–599 of X should have shape \(200, 5\); .* shape \(200, 4\)"):
        LowRankKernel(da.concatenate(parts), W)
    unknown = da.from_array(X, chunks=(200, D))
    with pytest.raises(InvalidInputError, match=r"call X\.compute_chunk_sizes\(\)"):
        LowRankKernel(unknown[unknown[:, 0] > 0], W)
    with pytest.raises(InvalidInputError, match=r"part 1 .* 4"):
        Stacked([as_rows(Own(X)), as_rows(Own(X[:, 1:]))])
    with pytest.raises(InvalidInputError, match="at least one part"):
        Stacked([])


@only_posix.open_files
@pytest.mark.usefixtures("streamed")
def test_a_file_that_is_cut_short_while_in_use(tmp_path):
    X, W = factors()
    X = memmap(X, tmp_path)
    kernel = LowRankKernel(X, W)
    with open(X.filename, "rb+") as file:
        file.truncate(128 + 500 * 4 * D)
    with pytest.raises(
        RowsUnavailableError, match=r"row 700 of X could not be read from file .*cut short.*still there"
    ):
        kernel.log_det([700])
    with pytest.raises(RowsUnavailableError, match=r"rows from \d+ on of X could not be read"):
        kernel.inclusion_probabilities(2)
    with pytest.raises(
        InvalidInputError, match=r"should hold 900 × 5 float32 from byte 128, 18128 bytes in all; it has 10128"
    ):
        FileRows(X.filename, X.shape, X.dtype, 128)


@pytest.mark.skipif(not hasattr(os, "pread"), reason="compiled loops read files with pread")
@pytest.mark.usefixtures("streamed")
@pytest.mark.parametrize("is_symmetric", [False, True])
def test_compiled_loops_read_files(tmp_path, monkeypatch, is_symmetric):
    """One file or several, all items or some, with a background or without; what has changed or is cut short is an error there too."""
    X, W = factors()
    W, path = np.eye(D) if is_symmetric else W, tmp_path / "X"
    X.tofile(path)
    shards = Stacked([FileRows(path, (m, D), X.dtype, 4 * D * at) for at, m in ((0, 200), (200, 1), (201, 699))])

    def variants(source: Any) -> list[LowRankKernel]:
        kernel = LowRankKernel(source, W)
        return [kernel, kernel.exclude([3, 500]), LowRankKernel(source, W, background=np.linspace(0, 0.5, N)).low_rank]

    def draws(kernels: list[LowRankKernel]) -> list[list[list[int]]]:
        return [kernel.sample(5, size=size, rng=1).to_lists() for kernel in kernels for size in (3, None)]

    of_files, whole = variants(shards), LowRankKernel(FileRows(path, X.shape, X.dtype), W)
    with monkeypatch.context() as patch:
        patch.setattr(FileRows, "rows", None)  # no row is fetched by Python
        assert draws(of_files) == draws(variants(X))
        assert draws([whole]) == draws([LowRankKernel(X, W)])
    path.write_bytes(bytes(4 * D * N))
    with pytest.raises(RowsUnavailableError, match=r"row \d+ of X is not what it was .* file .* has changed"):
        whole.sample(1, size=3, rng=0)
    os.truncate(path, 100)
    with pytest.raises(RowsUnavailableError, match=r"row \d+ of X could not be read from .*cut short"):
        whole.sample(1, size=3, rng=0)


@only_posix.open_files
@pytest.mark.usefixtures("streamed")
def test_a_store_that_disappears(tmp_path):
    X, W = factors()
    mapped, dataset, array = memmap(X, tmp_path), hdf5(X, tmp_path), zarr_array(X, tmp_path)
    by_file, by_hdf5, by_zarr = (LowRankKernel(source, W) for source in (mapped, dataset, array))
    elsewhere = pickle.dumps(by_file)
    dataset.file.close()
    shutil.rmtree(tmp_path)
    with pytest.raises(RowsUnavailableError, match="could not be read from HDF5 dataset '/deep/X' of"):
        by_hdf5.sample(1, size=2, rng=0)
    with pytest.raises(RowsUnavailableError, match=r"could not be read from Zarr array .*no array at .* any more"):
        by_zarr.sample(1, size=2, rng=0)
    with pytest.raises(RowsUnavailableError, match="rows from 0 on of X could not be read from Zarr array"):
        by_zarr.inclusion_probabilities(2)
    with pytest.raises(RowsUnavailableError, match=r"could not be read from file .*X\.npy.*FileNotFoundError"):
        pickle.loads(elsewhere).sample(1, size=2, rng=0)


@pytest.mark.usefixtures("streamed")
def test_a_store_whose_rows_have_changed():
    """Zarr takes a lost chunk for zeros; such a row would only look unlikely."""
    X, W = factors()
    store = Own(X.copy())
    kernel = LowRankKernel(store, W)
    store.X[:] = 0.0
    with pytest.raises(
        RowsUnavailableError, match=r"row \d+ of X is not what it was when the kernel was prepared: Own has changed"
    ):
        kernel.sample(1, size=2, rng=0)


def test_shapes_and_kinds_that_no_kernel_has(tmp_path):
    X, W = factors()
    with pytest.raises(InvalidInputError, match="two whole numbers"):
        LowRankKernel(da.from_array(np.ones(4)), W)
    with pytest.raises(InvalidInputError, match="entries are <U1"):
        LowRankKernel(da.from_array(np.array([["a"]])), np.eye(1))
    with pytest.raises(InvalidKernelError, match="at least one item"):
        LowRankKernel(da.from_array(np.ones((0, 3))), np.eye(3))
    with pytest.raises(InvalidInputError, match=r"W must have shape \(5, 5\)"):
        LowRankKernel(memmap(X, tmp_path), np.eye(3))


# -- saved -------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(sys.modules["ndpp.laws.files"], "SHARD_BYTES", 4096)
    X, W = factors()
    model_files.save(
        LowRankKernel(memmap(X, tmp_path), W, labels=[f"item {i}" for i in range(N)]),
        tmp_path / "model",
        metadata={"a": 1},
    )
    return tmp_path / "model"


@pytest.mark.usefixtures("streamed")
def test_a_kernel_is_saved_in_shards_and_loaded_where_it_lies(saved, source):
    X, W = factors()
    assert len(list(saved.iterdir())) == 6
    kernel = model_files.load(saved)
    assert isinstance(kernel.X, Stacked)
    np.testing.assert_array_equal(kernel.X.read(), X)
    np.testing.assert_array_equal(kernel.W, W)
    assert kernel.labels is not None
    assert kernel.labels[7] == "item 7"
    assert model_files.load_metadata(saved) == {"a": 1}
    assert kernel.sample(9, size=3, rng=0) == LowRankKernel(X, W, labels=kernel.labels).sample(9, size=3, rng=0)
    model_files.save(LowRankKernel(source(X), W).exclude([4]), saved)  # in place of the old one
    assert 4 not in model_files.load(saved).support
    assert not [path for path in saved.parent.iterdir() if path.name.startswith(".")]


@pytest.mark.usefixtures("streamed")
def test_a_single_file_is_loaded_lazily(tmp_path):
    X, W = factors()
    kernel = LowRankKernel(X, W).condition([3])
    model_files.save(kernel, tmp_path / "m.safetensors")
    lazy = model_files.load(tmp_path / "m.safetensors", lazy=True)
    assert isinstance(lazy.X, FileRows)
    np.testing.assert_array_equal(lazy.X.read(), load_file(tmp_path / "m.safetensors")["X"])
    assert lazy.sample(9, size=2, rng=0) == kernel.sample(9, size=2, rng=0)
    damaged = bytearray((tmp_path / "m.safetensors").read_bytes())
    damaged[-100] ^= 1
    (tmp_path / "m.safetensors").write_bytes(damaged)
    with pytest.raises(ModelFileError, match="do not match their checksum"):
        model_files.load(tmp_path / "m.safetensors", lazy=True)


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-7] ^= 1
    path.write_bytes(data)


SPOILT = {
    "lost": (lambda path: path.unlink(), "No such file|cannot find the file"),
    "cut": (lambda path: path.write_bytes(path.read_bytes()[:-40]), "truncated, corrupt"),
    "empty": (lambda path: path.write_bytes(b""), "X cannot be read"),
    "other": (lambda path: shutil.copy(path.with_name("X-00004.safetensors"), path), "should hold 204 rows; it holds 84"),
    "flipped": (_flip, "does not match its checksum"),
    "a list": (lambda path: _craft(path, []), "not a safetensors file"),
    "deep": (lambda path: _craft(path, b"[" * 100_000), "nested too deep"),
    "without X": (lambda path: _craft(path, {}), "should be a matrix of floats; it is missing"),
    "of no columns": (lambda path: _craft(path, {"X": _entry([2**62, 0], 0)}), "X cannot be read"),
    "of very many rows": (lambda path: _craft(path, {"X": _entry([2**70, 0], 0)}), "X cannot be read"),
    "of three axes": (lambda path: _craft(path, {"X": _entry([2, 2, 2], 64)}, 64), "should be a matrix of floats"),
    "of texts": (lambda path: _craft(path, {"X": {"dtype": 3, "shape": "ab", "data_offsets": None}}), "X cannot be read"),
    "of other numbers": (
        lambda path: _craft(path, {"X": _entry([4, 4], 32, "BF16")}, 32),
        "should be a matrix of floats; it is BF16",
    ),
    "elsewhere": (lambda path: _craft(path, {"X": _entry([2, 2], 32) | {"data_offsets": [-9, 23]}}, 32), "X cannot be"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "not a plain file|X cannot be read"),
}  # fmt: skip


def _entry(shape: list[int], size: int, dtype: str = "F64") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}


def _craft(path: Path, header: Any, size: int = 0) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(size))


@pytest.mark.parametrize(("spoil", "message"), SPOILT.values(), ids=SPOILT)
def test_a_shard_that_is_spoilt_is_named(saved, spoil, message):
    spoil(saved / "X-00002.safetensors")
    with pytest.raises(ModelFileError, match=message):
        model_files.load(saved)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_in_place_of_a_shard_does_not_wait(saved):
    (saved / "X-00002.safetensors").unlink()
    os.mkfifo(saved / "X-00002.safetensors")
    with pytest.raises(ModelFileError, match="not a plain file"):
        model_files.load(saved)


@pytest.mark.parametrize("name", ["X-00002.safetensors", "kernel.safetensors"])
def test_nothing_outside_the_folder_is_read(saved, tmp_path, name):
    """A model that links to files elsewhere is refused; a link to the whole folder is the user's own."""
    (tmp_path / "link").symlink_to(saved, target_is_directory=True)
    assert model_files.load(tmp_path / "link").n_items == N
    shutil.move(saved / name, tmp_path / "secret")
    (saved / name).symlink_to(tmp_path / "secret")
    with pytest.raises(ModelFileError, match="link to another folder"):
        model_files.load(saved)


def test_a_folder_of_something_else_is_left_alone(saved, tmp_path):
    kernel = model_files.load(saved)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat").write_text("miaow")
    with pytest.raises(FileExistsError, match="exists and is not a folder with"):
        model_files.save(kernel, tmp_path / "photos")
    with pytest.raises(FileNotFoundError, match="create it first"):
        model_files.save(kernel, tmp_path / "no" / "where")
    before = sorted(path.read_bytes() for path in saved.iterdir())
    (saved / "X-00003.safetensors").unlink()
    with pytest.raises(RowsUnavailableError):
        model_files.save(pickle.loads(pickle.dumps(kernel)), saved)  # nothing is replaced by half a model
    assert len(list(saved.iterdir())) == len(before) - 1
    assert (tmp_path / "photos" / "cat").read_text() == "miaow"
