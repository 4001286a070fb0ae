"""What other systems lack or refuse, imitated here: Windows' open files, missing calls, coarse clocks and small alphabets."""

from __future__ import annotations

import ast
import errno
import hashlib
import io as streams
import os
import pickle
import subprocess
import sys
import threading
import time
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ndpp
from ndpp import Baskets, LowRankKernel, _atomic
from ndpp.cli import guard
from ndpp.cli.app import run
from ndpp.datasets import fetch, make_kernel
from ndpp.errors import InvalidInputError
from ndpp.laws import files as model_files
from ndpp.rows import FileRows, Stacked
from ndpp_experiments import record, timing

pytest.importorskip("torch", reason="needs torch: pip install 'ndpp[learn]'")

from ndpp.learning import NDPP, checkpoint
from ndpp_experiments import demo

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="which files are open is read from /proc")
N, D = 400, 4
BODY = bytes(range(256)) * 500


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    imitate = pytest.importorskip("windows", reason="needs fcntl").imitate
    imitate(monkeypatch)


def matrix() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((N, D))


def mapped(folder: Path) -> np.memmap:
    out = np.memmap(folder / "X", np.float64, "w+", shape=(N, D))
    out[:] = matrix()
    return out


@on_linux
@pytest.mark.usefixtures("windows")
def test_the_imitation_refuses_what_windows_does(tmp_path):
    path = tmp_path / "file"
    with open(path, "wb"), pytest.raises(PermissionError):
        os.replace(path, tmp_path / "other")
    os.replace(path, tmp_path / "other")
    (tmp_path / "other").write_bytes(bytes(4096))
    X = np.memmap(tmp_path / "other", np.uint8, "r")
    with pytest.raises(PermissionError):
        (tmp_path / "other").unlink()
    del X
    (tmp_path / "other").unlink()


@on_linux
@pytest.mark.usefixtures("windows")
def test_rows_are_read_without_pread(tmp_path):
    X = matrix()
    rows = FileRows.of(mapped(tmp_path))
    assert rows is not None
    np.testing.assert_array_equal(rows.read(), X)
    ids = np.random.default_rng(1).integers(0, N, (8, 2000))
    with ThreadPoolExecutor(8) as pool:  # one position of one file, and every thread finds its own rows
        for found, wanted in zip(pool.map(rows.rows, ids), ids):
            np.testing.assert_array_equal(found, X[wanted])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(rows)).read(), X)
    os.truncate(tmp_path / "X", 8 * D * 100)
    with pytest.raises(OSError, match="row 200; it was cut short"):
        rows.rows(np.array([3, 200]))


def test_threads_that_share_a_position_wait_for_each_other(tmp_path, monkeypatch):
    """A lock that does nothing lets another thread move the position between seek and read."""
    monkeypatch.delattr(os, "pread", raising=False)
    np.arange(4.0).tofile(tmp_path / "X")
    entered: list[bool] = []

    class Noting:
        def __enter__(self):
            entered.append(True)

        def __exit__(self, *_):
            entered.append(False)

    monkeypatch.setattr(threading, "Lock", Noting)
    assert FileRows(str(tmp_path / "X"), (4, 1), np.float64).rows(np.array([2]))[0, 0] == 2.0
    assert entered == [True, False]


@on_linux
@pytest.mark.usefixtures("windows")
def test_models_are_saved_and_replaced(tmp_path):
    kernel = make_kernel(50, 4, rng=0)
    for _ in range(2):
        model_files.save(kernel, tmp_path / "model.safetensors")
        again = model_files.load(tmp_path / "model.safetensors")
    assert again.sample(5, size=2, rng=0) == kernel.sample(5, size=2, rng=0)
    lazy = model_files.load(tmp_path / "model.safetensors", lazy=True)
    assert lazy.sample(5, size=2, rng=0) == kernel.sample(5, size=2, rng=0)
    with pytest.raises(PermissionError, match=r"model\.safetensors' cannot be replaced: .* in use"):
        model_files.save(kernel, tmp_path / "model.safetensors")
    del lazy
    model_files.save(kernel, tmp_path / "model.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


@on_linux
@pytest.mark.usefixtures("windows")
def test_folders_are_replaced_unless_they_are_in_use(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["ndpp.laws.files"], "SHARD_BYTES", 4096)
    target = tmp_path / "model"
    kernel = LowRankKernel(mapped(tmp_path), np.eye(D))
    for _ in range(2):
        model_files.save(kernel, target)
    again = model_files.load(target)
    assert isinstance(again.X, Stacked)
    draws = again.sample(5, size=2, rng=0)
    assert draws == LowRankKernel(matrix(), np.eye(D)).sample(5, size=2, rng=0)
    with pytest.raises(PermissionError, match=r"/model' cannot be replaced: .* in use"):
        model_files.save(again, target)
    assert again.sample(5, size=2, rng=0) == draws
    assert model_files.load(target).n_items == N
    assert sorted(path.name for path in tmp_path.iterdir()) == ["X", "model"]


def test_a_file_that_is_held_for_a_moment_is_replaced(tmp_path, monkeypatch):
    true, calls, pauses = os.replace, [], []

    def held(*paths: Path) -> None:
        calls.append(paths)
        if len(calls) < 3:
            raise PermissionError(errno.EACCES, "Access is denied")
        true(*paths)

    monkeypatch.setattr(os, "replace", held)
    monkeypatch.setattr(_atomic, "time", SimpleNamespace(sleep=pauses.append))
    with pytest.raises(PermissionError), _atomic.replacing(tmp_path / "x") as path:
        path.touch()  # elsewhere a refusal is final
    assert (len(calls), pauses, list(tmp_path.iterdir())) == (1, [], [])
    calls.clear()
    monkeypatch.setattr(_atomic, "WINDOWS", True)
    with _atomic.replacing(tmp_path / "x") as path:
        path.write_bytes(b"new")
    assert (len(calls), pauses) == (3, list(_atomic.PAUSES[:2]))
    assert (tmp_path / "x").read_bytes() == b"new"


@on_linux
@pytest.mark.usefixtures("windows")
@pytest.mark.parametrize("suffix", ["txt", "txt.gz", "csv", "parquet"])
def test_baskets_are_written_over_old_ones(tmp_path, suffix):
    for baskets in (Baskets.from_lists([[0, 1]]), Baskets.from_lists([[0], [1, 2]])):
        baskets.write(tmp_path / f"x.{suffix}")
        assert Baskets.read(tmp_path / f"x.{suffix}", as_labels=False).to_lists() == baskets.to_lists()
    assert len(list(tmp_path.iterdir())) == 1


@on_linux
@pytest.mark.usefixtures("windows")
def test_training_goes_on_from_a_checkpoint_that_it_replaces(tmp_path, monkeypatch):
    baskets = Baskets.from_lists([[0, 1], [2], [1, 3], [0, 2, 3]] * 20)
    settings = {"rank": 4, "random_state": 0, "batch_size": 20, "patience": 9, "max_epochs": 4}
    path, true, left = tmp_path / "run.ndpp-part", checkpoint.write, iter(range(2))

    def interrupted(*arguments: Any) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        true(*arguments)

    monkeypatch.setattr(checkpoint, "write", interrupted)
    with pytest.warns(UserWarning, match="interrupted"):
        NDPP(checkpoint=path, **settings).fit(baskets)
    monkeypatch.setattr(checkpoint, "write", true)
    resumed = NDPP(checkpoint=path, **settings).fit(baskets, resume=True)
    np.testing.assert_array_equal(resumed.kernel_.X, NDPP(**settings).fit(baskets).kernel_.X)
    assert len(resumed.history_) == 4
    path.unlink()


@pytest.fixture
def url():
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(BODY)))
            self.end_headers()
            self.wfile.write(BODY)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/data.zip"
        server.shutdown()
        thread.join()


def test_several_downloads_at_once(url, tmp_path, monkeypatch):
    """Each goes to a temporary file of its own; the last to end leaves the same bytes as the first."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    sha256 = hashlib.sha256(BODY).hexdigest()
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: fetch(url, sha256=sha256, folder=tmp_path), range(4)))
    assert {path.read_bytes() for path in paths} == {BODY}
    assert [path.name for path in tmp_path.iterdir()] == ["data.zip"]


@pytest.mark.parametrize("name", ["..%5C..%5Cx.zip", "C:x.zip", "C:%5Cx.zip"])
def test_a_download_never_leaves_its_folder(name, tmp_path):
    with pytest.raises(InvalidInputError, match="ends in a file name"):
        fetch(f"http://127.0.0.1/{name}", sha256="0", folder=tmp_path)


def test_a_device_is_written_to_as_it_is():
    Baskets.from_lists([[0]]).write(os.devnull)
    assert not Path(os.devnull).is_file()


def test_a_coarse_clock_is_not_used(monkeypatch):
    assert timing.finest_clock() in (time.thread_time, time.perf_counter)
    for resolution, clock in ((1e-9, time.thread_time), (0.015625, time.perf_counter)):
        monkeypatch.setattr(time, "get_clock_info", lambda name, found=resolution: SimpleNamespace(resolution=found))
        assert timing.finest_clock() is clock


def test_a_reader_that_leaves_is_known_by_either_name(monkeypatch):
    gone = OSError(errno.EINVAL, "Invalid argument")
    assert guard.reader_left(BrokenPipeError())
    assert not guard.reader_left(gone)
    monkeypatch.setattr(guard, "WINDOWS", True)
    assert guard.reader_left(gone)
    assert not guard.reader_left(OSError(errno.EINVAL, "Invalid argument", "a file"))
    assert not guard.reader_left(OSError(errno.ENOSPC, "No space left on device"))


def test_what_is_piped_is_the_same_bytes_everywhere(monkeypatch):
    stream = streams.TextIOWrapper(streams.BytesIO(), encoding="cp1252", newline="\r\n")
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(guard.warnings, "showwarning", guard.warnings.showwarning)
    with guard.warnings.catch_warnings():
        guard.install()
    print("Käse 奶酪")
    stream.flush()
    assert stream.buffer.getvalue() == "Käse 奶酪\n".encode()


def test_the_demonstration_needs_no_alphabet(monkeypatch, tmp_path):
    stream = streams.TextIOWrapper(streams.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(guard.warnings, "showwarning", guard.warnings.showwarning)
    monkeypatch.setattr(demo, "run", lambda output, progress: demo._title("α"))
    with guard.warnings.catch_warnings(), pytest.raises(SystemExit) as ended:
        run(["demo", "-o", str(tmp_path)])
    assert not ended.value.code
    assert stream.buffer.getvalue().split() == ["α".encode(), "─".encode()]


def test_a_report_from_a_system_without_a_load_average(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "getloadavg", raising=False)
    about = {"quick": True, "seed": 0, "seconds": 1.0, "machine": record.machine()}
    record.write("fig9", "A figure", record.Result({}, [], {"": [namedtuple("Record", "ä")(1)]}), tmp_path, about=about)
    report = record.report(tmp_path, ["fig9"]).read_bytes()
    assert b"load average" not in report
    assert f"{os.cpu_count()} cores".encode() in report
    assert b"\r" not in report
    assert (tmp_path / "fig9.csv").read_bytes() == "ä\n1\n".encode()


def left_to_the_system(code: str) -> list[str]:
    """Return the calls that read or write text and leave its encoding, or the ends of its lines, to the system."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Call):
            continue
        method, function = getattr(node.func, "attr", ""), getattr(node.func, "id", "")
        mode = str(getattr(node.args[1], "value", "b")) if function == "open" and len(node.args) > 1 else "r"
        of_path = (method, len(node.args)) in (("read_text", 0), ("write_text", 1))  # ours take more
        if not (of_path or function == "open") or "b" in mode:
            continue
        named = {word.arg for word in node.keywords}
        writes = method == "write_text" or not mode.startswith("r")
        if not ({"encoding", "newline"} if writes else {"encoding"}) <= named:
            found.append(ast.unparse(node))
    return found


def test_text_in_files_does_not_depend_on_the_system():
    for path in sorted(Path(ndpp.__file__).parent.rglob("*.py")):
        assert left_to_the_system(path.read_text(encoding="utf-8")) == [], path
    assert left_to_the_system("open(p)\nopen(p, 'rb')\nopen(p, 'w', encoding='utf-8')\np.read_text()") == [
        "open(p)", "open(p, 'w', encoding='utf-8')", "p.read_text()"
    ]  # fmt: skip


def test_no_part_of_the_package_needs_a_posix_module():
    """Neither importing it nor its commands may ask for what Windows does not have."""
    code = (
        "import importlib, pkgutil, sys\n"
        "for name in ('fcntl', 'resource', 'termios', 'pwd', 'grp', 'pty', 'triton'):\n"
        "    sys.modules[name] = None\n"
        "import ndpp\n"
        "for found in pkgutil.walk_packages(ndpp.__path__, 'ndpp.'):\n"
        "    if not found.name.endswith(('__main__', 'gpu._kernels')):\n"
        "        importlib.import_module(found.name)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(ndpp.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
