"""Model files: what is saved comes back, and every kind of bad file is named without touching anything."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import families
import mixtures
import only_posix
import oracles
from kernels import AWKWARD, Case
from ndpp._atomic import HOST, check_writable, sweep
from ndpp.errors import InvalidInputError, ModelFileError, UncheckedModelWarning
from ndpp.laws import files as model_files
from ndpp.laws.families import FamilyMixture
from ndpp.laws.header import NO_DIGEST, digest, seal
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.mixture import Mixture
from ndpp.laws.part import Part
from ndpp.laws.tied import TiedMixture


def kernel_of(dtype: type = np.float64, *, order: str = "C", labels: bool = False) -> LowRankKernel:
    rng = np.random.default_rng(3)
    X = np.asarray(rng.standard_normal((7, 4)), dtype, order=order)  # type: ignore[call-overload]
    skew = rng.standard_normal((4, 4))
    return LowRankKernel(X, np.eye(4) + skew - skew.T, labels=[f"item, “{i}”\n" for i in range(7)] if labels else None)


def _earlier() -> dict[str, Any]:
    """Return the laws whose files earlier versions wrote, built anew from the same arrays."""
    X = np.array([[1.0, 0.5], [0.25, -1.0], [-0.5, 0.75], [1.5, 0.25], [0.0, 1.0]])
    W, background = np.array([[1.0, 0.75], [-0.75, 0.5]]), [0.5, 0.0, 0.25, 1.0, 0.125]
    odds, weights = [[0.5, 0.25, 1.0, 0.125, 2.0], [0.25, 2.0, 0.0, 1.0, 0.5]], [0.75, 0.25]
    item_odds = [[0.5, 2.0], [1.0, 0.25], [0.75, 0.0], [1.0, 0.0], [0.5, 0.0]]
    labels = ["bread", "tea", "jam, “red”", "crème", "rye"]
    plain, with_background = (
        LowRankKernel(rows, W, background=odds, labels=labels) for rows, odds in ((X, None), (X[::-1], background))
    )
    tied = Mixture.tied(odds, X, W, weights, names=["weekly", "snack"], labels=labels)
    return {
        "kernel-0.1.0": plain,
        "conditional-0.1.0": plain.exclude([1]).condition([0]),
        "kernel-0.2.0": LowRankKernel(X, W, background=background, labels=labels),
        "mixture-0.2.0": Mixture([plain, with_background], weights),
        "tied-0.2.0": tied.without_empty(),
        "prepared-0.2.0": tied,
        "context-0.2.0": tied.with_context({"weekday": ("Friday", "Sunday")}, [[0.5, -0.5], [-1.0, 1.0]]),
        "families-0.2.0": FamilyMixture(
            [[0.5, 0.25, 1.0], [2.0, 0.125, 0.5]], item_odds, [0, 0, 1, 1, 1], [0, 0, 1], X[:2], W, weights=weights, labels=labels
        ),
    }  # fmt: skip


EARLIER, FOLDER = _earlier(), Path(__file__).with_name("earlier")
"""The laws, and the folder of their files, each named by the version that wrote it: 0.1.0 at 555cf87a, 0.2.0 at 82d4c697."""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    model_files.save(kernel_of(), path, metadata={"steps": 3})
    return path


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("labels", [False, True])
def test_round_trip(tmp_path: Path, dtype: type, order: str, labels: bool) -> None:
    kernel = kernel_of(dtype, order=order, labels=labels)
    model_files.save(kernel, tmp_path / "m.safetensors")
    again = model_files.load(tmp_path / "m.safetensors")
    for name in ("X", "W", "support"):
        saved, loaded = getattr(kernel, name), getattr(again, name)
        assert loaded.dtype == saved.dtype
        np.testing.assert_array_equal(loaded, saved)
    assert again.labels == kernel.labels


def test_strided_views_round_trip(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((12, 8))
    kernel = LowRankKernel(X[::2, ::-2], np.eye(4))
    model_files.save(kernel, tmp_path / "m.safetensors")
    np.testing.assert_array_equal(model_files.load(tmp_path / "m.safetensors").X, X[::2, ::-2])


def test_restricted_and_conditioned_kernels_keep_their_support(tmp_path: Path) -> None:
    kernel = kernel_of(labels=True)
    for part in (kernel.restrict([5, 1, 2]), kernel.exclude([0]), kernel.condition([3])):
        model_files.save(part, tmp_path / "m.safetensors")
        again = model_files.load(tmp_path / "m.safetensors")
        np.testing.assert_array_equal(again.support, part.support)
        np.testing.assert_array_equal(again.to_dense(), part.to_dense())
        assert again.n_items == 7


@pytest.mark.parametrize("case", AWKWARD, ids=str)
def test_kernels_that_condition_gives_can_be_loaded(tmp_path: Path, case: Case) -> None:
    for item in np.flatnonzero(np.diag(case.L) > 0)[: case.n_items - 1]:
        part = case.kernel.condition([item])
        model_files.save(part, tmp_path / "m.safetensors")
        again = model_files.load(tmp_path / "m.safetensors")
        assert again.rank == part.rank
        np.testing.assert_allclose(again.size_distribution(), part.size_distribution(), atol=1e-12)


def test_metadata(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    given = {"rank": np.int64(3), "loss": [np.float32(0.5), 1], "nested": {"name": "é"}, "sizes": np.arange(2)}
    model_files.save(kernel_of(labels=True), path, metadata=given)
    assert model_files.load_metadata(path) == {"rank": 3, "loss": [0.5, 1], "nested": {"name": "é"}, "sizes": [0, 1]}
    header = model_files.load_header(path)
    assert (header.format_version, header.parametrisation, header.n_items, header.n_columns) == (1, "xw", 7, 4)
    assert header.labels == kernel_of(labels=True).labels
    model_files.save(kernel_of(), path)
    assert model_files.load_metadata(path) == {}


@pytest.mark.parametrize("value", [object(), {1, 2}, float("nan"), float("inf")])
def test_metadata_that_is_not_json_changes_nothing(model: Path, value: object) -> None:
    before = model.read_bytes()
    with pytest.raises(InvalidInputError, match="metadata must be plain JSON"):
        model_files.save(kernel_of(), model, metadata={"value": value})
    assert model.read_bytes() == before


def test_save_takes_kernels_and_plain_files_only(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="expected a kernel, a mixture or a fitted estimator; got ndarray"):
        model_files.save(np.eye(3), tmp_path / "m")
    with pytest.raises(InvalidInputError, match="something else"):
        model_files.save(kernel_of(), tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere' to write 'm' in"):
        model_files.save(kernel_of(), tmp_path / "nowhere" / "m")
    assert not list(tmp_path.iterdir())


def test_failed_save_leaves_the_old_file(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = model.read_bytes()

    def fails(arrays: Any, path: Path, header: Any) -> None:
        path.write_bytes(b"half a model")
        raise OSError("disk full")

    monkeypatch.setattr(model_files, "save_file", fails)
    with pytest.raises(OSError, match="disk full"):
        model_files.save(kernel_of(np.float32), model)
    assert model.read_bytes() == before
    assert os.listdir(model.parent) == [model.name]


@only_posix.modes
def test_new_files_are_as_open_as_others(model: Path) -> None:
    (model.parent / "plain").touch()
    assert model.stat().st_mode == (model.parent / "plain").stat().st_mode
    model.chmod(0o640)
    model_files.save(kernel_of(), model)
    assert model.stat().st_mode & 0o777 == 0o640


def test_missing_file(tmp_path: Path) -> None:
    for read in (model_files.load, model_files.load_metadata):
        with pytest.raises(FileNotFoundError, match=r"no model file at .*gone\.safetensors"):
            read(tmp_path / "gone.safetensors")


def _npz(path: Path) -> None:
    with path.open("wb") as file:  # np.savez would add a suffix to a path
        np.savez(file, X=np.eye(3), W=np.eye(3))


def _npy(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.eye(3))


def _rewrite_header(path: Path, change: Callable[[dict[str, str]], object]) -> None:
    """Change the metadata, digest and all, and leave the arrays alone."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    fields = header["__metadata__"]
    change(fields)
    if "digest" in fields:
        fields["digest"] = digest(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])


def _rewrite_arrays(path: Path, **arrays: np.ndarray | None) -> None:
    """Change the arrays, checksum and all, and leave the rest of the metadata alone."""
    old = load_file(path)
    new = {name: array for name, array in {**old, **arrays}.items() if array is not None}
    fields = {**model_files.load_header(path)._asdict(), "format": model_files.FORMAT, "crc32": model_files._crc32(new)}
    fields |= {name: json.dumps(fields[name]) for name in ("labels", "metadata", "shards", "names", "components")}
    fields |= {"digest": NO_DIGEST}
    save_file(new, path, {name: str(value) for name, value in fields.items() if value is not None})
    seal(path)


def _rewrite_type(path: Path, dtype: str) -> None:
    """Say another type of the entries of W, with a shape that fits."""
    width = {"C64": 8, "BF16": 2}[dtype]

    def change(header: dict[str, Any]) -> None:
        header["W"] |= {"dtype": dtype, "shape": [16 * 8 // width]}

    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    change(header)
    header["__metadata__"]["digest"] = digest(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])


def _flip_last_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


BAD = {
    "empty": (lambda p: p.write_bytes(b""), "it is empty"),
    "truncated": (lambda p: p.write_bytes(p.read_bytes()[:-9]), "truncated, corrupt"),
    "truncated in the header": (lambda p: p.write_bytes(p.read_bytes()[:40]), "truncated, corrupt"),
    "three bytes": (lambda p: p.write_bytes(b"abc"), "truncated, corrupt"),
    "something appended": (lambda p: p.write_bytes(p.read_bytes() + b"x"), "truncated, corrupt"),
    "text": (lambda p: p.write_text("X,W\n" * 50), "truncated, corrupt or of another kind"),
    "one bit flipped": (_flip_last_byte, "do not match their checksum"),
    "pickle": (lambda p: p.write_bytes(pickle.dumps({"X": [1.0] * 50})), "looks like a pickle, which is never loaded"),
    "npz": (_npz, r"zip archive \(\.npz, \.pt\); load X and W"),
    "npy": (_npy, r"looks like a \.npy file"),
    "gzip": (lambda p: p.write_bytes(b"\x1f\x8b\x08" + b"\0" * 30), "unpack it first"),
    "foreign": (lambda p: save_file({"X": np.eye(3), "W": np.eye(3)}, p), "not one that ndpp.save wrote"),
    "foreign with metadata": (
        lambda p: save_file({"X": np.eye(3)}, p, {"format": "pt"}),
        "not one that ndpp.save wrote",
    ),
    "newer": (
        lambda p: _rewrite_header(p, lambda m: m.update(format_version="10", ndpp_version="9.9")),
        r"format version 10, written by ndpp 9\.9; this ndpp knows versions up to 9\. Upgrade with: pip install -U",
    ),
    "a folder's index alone": (
        lambda p: _rewrite_header(p, lambda m: m.update(format_version="2")),
        "header is damaged",
    ),
    "no version": (lambda p: _rewrite_header(p, lambda m: m.pop("format_version")), "header is damaged: KeyError"),
    "version zero": (lambda p: _rewrite_header(p, lambda m: m.update(format_version="0")), "header is damaged"),
    "other parameters": (lambda p: _rewrite_header(p, lambda m: m.update(parametrisation="vbd")), "header is damaged"),
    "labels not JSON": (lambda p: _rewrite_header(p, lambda m: m.update(labels="[1,")), "header is damaged"),
    "metadata not a mapping": (lambda p: _rewrite_header(p, lambda m: m.update(metadata="3")), "header is damaged"),
    "too few labels": (lambda p: _rewrite_header(p, lambda m: m.update(labels='["a"]')), "no valid kernel: labels"),
    "other number of items": (
        lambda p: _rewrite_header(p, lambda m: m.update(n_items="8")),
        r"X should be \(8, 4\) floats; it is \(7, 4\)",
    ),
    "X of other shape": (lambda p: _rewrite_arrays(p, X=np.ones((7, 3))), r"X should be \(7, 4\) floats"),
    "W of other shape": (lambda p: _rewrite_arrays(p, W=np.eye(3)), r"W should be \(4, 4\) floats; it is \(3, 3\)"),
    "integers": (lambda p: _rewrite_arrays(p, W=np.eye(4, dtype=np.int64)), r"floats; it is \(4, 4\), int64"),
    "no W": (
        lambda p: _rewrite_arrays(p, W=None),
        "expected the arrays X, W, perhaps weights, support, background; it holds X",
    ),
    "another array": (lambda p: _rewrite_arrays(p, Z=np.eye(4)), "it holds W, X, Z"),
    "NaN": (lambda p: _rewrite_arrays(p, X=np.full((7, 4), np.nan)), "no valid kernel: X must be finite"),
    "indefinite": (lambda p: _rewrite_arrays(p, W=-np.eye(4)), "no valid kernel"),
    "short weights": (lambda p: _rewrite_arrays(p, weights=np.ones(3)), "no valid kernel: magnitudes"),
    "support outside": (lambda p: _rewrite_arrays(p, support=np.array([9])), "no valid kernel: support"),
    "huge weights": (lambda p: _rewrite_arrays(p, weights=np.full(4, 1e300)), "no valid kernel: its weights"),
    "negative weights": (lambda p: _rewrite_arrays(p, weights=np.full(4, -1.0)), "no valid kernel: its weights"),
    "complex": (lambda p: _rewrite_type(p, "C64"), "W should be floats or ids; it is C64|truncated, corrupt"),
    "half-size floats": (lambda p: _rewrite_type(p, "BF16"), "W should be floats or ids; it is BF16"),
    "truth values": (lambda p: _rewrite_arrays(p, W=np.ones((4, 4), bool)), "W should be floats or ids; it is BOOL"),
    "deep labels": (lambda p: _rewrite_header(p, lambda m: m.update(labels="[" * 100_000)), "nested too deep"),
    "deep metadata": (lambda p: _rewrite_header(p, lambda m: m.update(metadata="[" * 100_000)), "nested too deep"),
    "labels a word": (lambda p: _rewrite_header(p, lambda m: m.update(labels='"teatime"')), "labels should be a list"),
    "labels numbers": (lambda p: _rewrite_header(p, lambda m: m.update(labels="[1, 2]")), "labels should be a list of"),
    "infinite shards": (
        lambda p: _rewrite_header(p, lambda m: m.update(shards='[["X", Infinity, 1]]', format_version="2")),
        "Infinity is not JSON",
    ),
    "shards of text": (
        lambda p: _rewrite_header(p, lambda m: m.update(shards='["X"]', format_version="2")),
        "a shard should be a name, a number of rows and a checksum",
    ),
    "very many items": (lambda p: _rewrite_header(p, lambda m: m.update(n_items=str(2**70))), "header is damaged"),
    "very many components": (
        lambda p: _rewrite_header(
            p, lambda m: m.update(n_components=str(10**9), parametrisation="mixture", format_version="3")
        ),
        "n_components is 1000000000",
    ),
}


@pytest.mark.parametrize(("spoil", "message"), BAD.values(), ids=BAD)
def test_bad_files_are_named_and_left_alone(model: Path, spoil: Callable[[Path], object], message: str) -> None:
    spoil(model)
    before = model.read_bytes()
    with pytest.raises(ModelFileError, match=rf"model\.safetensors' cannot be read as an ndpp model: .*{message}"):
        model_files.load(model)
    assert model.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda laws: laws.pop(), "expected the arrays"),
        (lambda laws: laws[0].update(n_items="8"), "8 odds|8 items|other labels|no valid kernel"),
        (lambda laws: laws[1].update(parametrisation="xw"), "expected the arrays"),
        (lambda laws: laws[1].update(parametrisation="pooled"), "expected the arrays"),
        (lambda laws: laws[1].update(parametrisation="vbd"), "a law of the kind 'vbd'"),
        (lambda laws: laws.append(laws[0]), "expected the arrays"),
    ],
)
def test_an_average_with_a_damaged_header_is_refused(
    tmp_path: Path, change: Callable[[list[dict[str, str]]], object], message: str
) -> None:
    path, odds = tmp_path / "average.safetensors", np.full((2, 7), 0.5)
    laws = [Mixture.tied(x * odds, x * np.eye(7, 4), np.eye(4), [0.25, 0.75]) for x in (1.0, 2.0)]
    model_files.save(average := Mixture.pooled(laws, [0.4, 0.6]), path)
    assert model_files.load(path).log_prob([0, 3]) == average.log_prob([0, 3])

    def damage(fields: dict[str, str]) -> None:
        components = json.loads(fields["components"])
        change(components)
        fields["components"] = json.dumps(components)

    _rewrite_header(path, damage)
    with pytest.raises(ModelFileError, match=f"cannot be read as an ndpp model: .*({message})"):
        model_files.load(path)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("1.weights", np.ones(2)), ("1.weights", np.ones((4, 4))), ("1.weights", np.full(4, 1e300)), ("1.background", np.ones(3)),
        ("0.W", np.eye(3)), ("0.X", np.full((7, 4), 1e300)), ("component_weights", np.ones(3)), ("1.support", np.array([0.5])),
    ],
)  # fmt: skip
def test_a_component_with_a_wrong_array_is_refused(tmp_path: Path, name: str, array: np.ndarray) -> None:
    path, X = tmp_path / "mixture.safetensors", np.eye(7, 4)
    model_files.save(Mixture([LowRankKernel(X, np.eye(4)), LowRankKernel(X[::-1], np.eye(4))], [0.5, 0.5]), path)
    _rewrite_arrays(path, **{name: array})
    with pytest.raises(
        ModelFileError, match=r"mixture\.safetensors' cannot be read as an ndpp model: .*no valid kernel"
    ):
        model_files.load(path)


def test_every_bit_of_the_header_is_checked(tmp_path: Path) -> None:
    """A flipped bit is an error, or changes nothing: not one letter of a label."""
    path = tmp_path / "model.safetensors"
    kernel = LowRankKernel(np.eye(2), np.eye(2), labels=["tea", "pea"])
    model_files.save(kernel, path, metadata={"seed": 3, "note": "tea"})
    data = path.read_bytes()
    for place in range(8, 8 + int.from_bytes(data[:8], "little")):
        for bit in range(8):
            changed = bytearray(data)
            changed[place] ^= 1 << bit
            path.write_bytes(changed)
            with contextlib.suppress(ModelFileError):
                assert model_files.load(path).labels == ("tea", "pea")
                assert model_files.load_metadata(path) == {"seed": 3, "note": "tea"}


def test_files_without_a_digest_are_loaded_with_a_warning(model: Path) -> None:
    """Files of earlier versions; but a file that has lost its digest to damage has an unknown field in its place."""
    kernel = model_files.load(model)
    _rewrite_header(model, lambda m: m.pop("digest"))
    with pytest.warns(UncheckedModelWarning, match=r"without a digest.*Save it again"):
        again = model_files.load(model)
    np.testing.assert_array_equal(again.X, kernel.X)
    _rewrite_header(model, lambda m: m.update(dagest="0"))
    with pytest.raises(ModelFileError, match=r"unknown fields \['dagest'\]"):
        model_files.load(model)


@pytest.mark.parametrize("name", EARLIER)
def test_files_of_earlier_versions_give_the_same_law(tmp_path: Path, name: str) -> None:
    """Bytes that earlier versions wrote. Those of 0.1.0 have no digest, which one warning says; all others are loaded without any."""
    path, law = FOLDER / f"{name}.safetensors", EARLIER[name]
    has_digest = not name.endswith("0.1.0")
    with contextlib.nullcontext() if has_digest else pytest.warns(UncheckedModelWarning, match=r"by ndpp 0\.1\.0"):
        again = model_files.load(path)
    assert type(again) is type(law)
    assert (again.labels, again.context, again.nonempty) == (law.labels, law.context, law.nonempty)
    assert getattr(again, "names", None) == getattr(law, "names", None)
    sets = oracles.subsets(law.n_items)
    for day in law.context.get("weekday", (None,)):
        asked = {} if day is None else {"context": {"weekday": day}}
        found = again.log_probs(sets, **asked)
        assert np.exp(found).sum() == pytest.approx(1.0, abs=1e-12)
        np.testing.assert_allclose(found, law.log_probs(sets, **asked), rtol=0, atol=1e-12)
    if has_digest:  # saved again, it keeps its arrays
        model_files.save(again, tmp_path / "again")
        saved, written = load_file(path), load_file(tmp_path / "again")
        assert saved.keys() == written.keys()
        assert all(np.array_equal(saved[key], written[key]) for key in saved)


@pytest.mark.filterwarnings("ignore::ndpp.errors.UncheckedModelWarning")
@pytest.mark.parametrize("name", EARLIER)
def test_flipped_bytes_in_the_arrays_of_earlier_files_are_refused(tmp_path: Path, name: str) -> None:
    """A negative control: the first, a middle and the last byte of the arrays."""
    data, path = (FOLDER / f"{name}.safetensors").read_bytes(), tmp_path / "model.safetensors"
    start = 8 + int.from_bytes(data[:8], "little")
    for place in (start, (start + len(data)) // 2, len(data) - 1):
        changed = bytearray(data)
        changed[place] ^= 1
        path.write_bytes(changed)
        with pytest.raises(ModelFileError, match="do not match their checksum"):
            model_files.load(path)


def test_folder_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="not a plain file"):
        model_files.load(tmp_path)


def test_one_kernel_has_one_file(tmp_path):
    kernel = LowRankKernel(np.eye(3), np.eye(3), labels=["a", "ß", 'q"\\\x01'])
    for name in ("first", "second"):
        model_files.save(kernel, tmp_path / name, metadata={"seed": 1, "é": "\n"})
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    assert model_files.load(tmp_path / "first").labels == kernel.labels
    assert model_files.load_metadata(tmp_path / "first") == {"seed": 1, "é": "\n"}
    size = int.from_bytes((tmp_path / "first").read_bytes()[:8], "little")
    fields = json.loads((tmp_path / "first").read_bytes()[8 : 8 + size])["__metadata__"]
    assert list(fields) == sorted(fields)


def _ended_process() -> int:
    """Return the number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@only_posix.signals
def test_what_killed_processes_left_is_swept(tmp_path: Path) -> None:
    """The next writer of the same file removes it, and nothing else; a folder that was moved away is moved back."""
    dead, target = _ended_process(), tmp_path / "m"
    left = tmp_path / f".m.{HOST}-{dead}-abcdef.tmp"
    others = [
        f".m.{HOST}-{os.getpid()}-abcdef.tmp",
        f".m2.{HOST}-{dead}-abcdef.tmp",
        f".m.0000-{dead}-abcdef.tmp",
        ".m.tmp",
    ]
    within = [f"..m.{HOST}-{dead}-abcdef.tmp.{HOST}-{dead}-fedcba.tmp", f"..m.{HOST}-{dead}-abcdef.tmp.ndpp-lock"]
    others.append(f"..m.{HOST}-{os.getpid()}-abcdef.tmp.ndpp-lock")
    for name in (left.name, *within, *others):
        (tmp_path / name).touch()
    model_files.save(kernel_of(), target)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["m", *others])

    old = tmp_path / f".folder.{HOST}-{dead}-abcdef.old"
    old.mkdir()
    (old / "mark").write_text("whole")
    sweep(tmp_path / "folder")
    assert (tmp_path / "folder" / "mark").read_text() == "whole"
    (tmp_path / f".folder.{HOST}-{dead}-abcdef.old").mkdir()
    (tmp_path / f".folder.{HOST}-{dead}-abcdef.tmp").mkdir()
    sweep(tmp_path / "folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["m", "folder", *others])


def test_whether_a_file_can_be_written_is_tried_beside_it(tmp_path, monkeypatch):
    created, touch = [], Path.touch
    monkeypatch.setattr(Path, "touch", lambda self, **how: (created.append(self.name), touch(self, **how)))
    check_writable(tmp_path / "x")
    assert created
    assert "x" not in created
    assert not list(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError, match="no such folder/x"):
        check_writable(tmp_path / "no such folder" / "x")


@pytest.mark.parametrize("kind", ["items", "families"])
def test_a_prepared_mixture_answers_from_its_file(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It is the same distribution, and what its first answers need comes from the file."""
    law = mixtures.tied("several", "generic") if kind == "items" else families.law_of("several")
    model_files.save(law.prepared(), tmp_path / "prepared.safetensors")
    found = model_files.load(tmp_path / "prepared.safetensors")
    assert model_files.load_header(tmp_path / "prepared.safetensors").format_version == 9
    monkeypatch.setattr(TiedMixture, "_rounding", lambda *_: pytest.fail("N was computed again"))
    monkeypatch.setattr(TiedMixture, "_quadratic_forms", lambda *_: pytest.fail("forms were computed again"))
    assert np.array_equal(found.touched._state.N, law.touched._state.N)
    assert found.popularity.tolist() == law.inclusion_probabilities().tolist()
    for ranking in ("continuation", "lift"):
        assert (
            found.recommend([1], n=3, ranking=ranking).items.tolist()
            == law.recommend([1], n=3, ranking=ranking).items.tolist()
        )
    for size in (None, 3):
        assert found.sample(20, given=[1], size=size, rng=0) == law.sample(20, given=[1], size=size, rng=0)
    assert np.allclose(found.inclusion_probabilities(given=[0]), law.inclusion_probabilities(given=[0]), atol=1e-12)
    monkeypatch.undo()
    sizes, kept_sizes = law.size_distribution(), law.sizes_with([2, 0])
    with monkeypatch.context() as patch:
        patch.setattr(Part, "sizes", property(lambda part: pytest.fail("sizes were computed again")))
        assert found.sizes_at_hand
        np.testing.assert_allclose(found.size_distribution(), sizes, atol=1e-15)
        np.testing.assert_allclose(found.sizes_with([2, 0]), kept_sizes, atol=1e-6)
    other = found.framed(found.frame.weighted(found.weights[::-1]))  # sizes with an item are those of some weights
    assert not other.sizes_at_hand
    reversed_law = law.framed(law.frame.weighted(law.weights[::-1]))
    np.testing.assert_allclose(other.sizes_with([2, 0]), reversed_law.sizes_with([2, 0]), atol=1e-12)
    assert np.abs(other.sizes_with([2, 0]) - kept_sizes).max() > 1e-4
    rest = found.condition([2])
    assert not rest._kept  # another mixture has other components
    np.testing.assert_allclose(rest.size_distribution(), law.condition([2]).size_distribution(), atol=1e-12)
    assert np.allclose(rest.inclusion_probabilities(), law.condition([2]).inclusion_probabilities(), atol=1e-12)


@pytest.mark.parametrize("name", ["marginals", "rounding", "size_moments", "forms", "gaps", "sized_by"])
def test_a_prepared_mixture_with_other_arrays_is_refused(name: str, tmp_path: Path):
    law = mixtures.tied("several", "generic").prepared()
    law._kept = {**law._kept, name: law._kept[name][..., :-1]}
    model_files.save(law, tmp_path / "wrong.safetensors")
    with pytest.raises(ModelFileError, match=f"{name} should be"):
        model_files.load(tmp_path / "wrong.safetensors")


NONEMPTY = {
    "kernel": lambda: kernel_of(),
    "background": lambda: LowRankKernel(kernel_of().X, kernel_of().W, background=np.full(7, 0.1)),
    "mixture": lambda: mixtures.general("several", "generic"),
    "tied": lambda: mixtures.tied("several", "generic").normalized(),
    "prepared": lambda: mixtures.tied("several", "generic").prepared(),
    "families": lambda: families.law_of(next(iter(families.CASES))),
}


@pytest.mark.parametrize("kind", NONEMPTY)
def test_that_the_empty_set_is_left_out_is_kept(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = NONEMPTY[kind]()
    law, path = plain.without_empty(), tmp_path / "law.safetensors"
    model_files.save(law, path)
    again = model_files.load(path)
    assert again.nonempty
    assert again.log_prob([]) == -np.inf
    np.testing.assert_array_equal(again.weights, law.weights)
    assert again.log_prob([0, 2]) == pytest.approx(law.log_prob([0, 2]), rel=1e-12)
    assert law.log_prob([0, 2]) > plain.log_prob([0, 2])
    model_files.save(plain, tmp_path / "plain.safetensors")
    assert not model_files.load(tmp_path / "plain.safetensors").nonempty  # as before
    assert model_files.load_header(tmp_path / "plain.safetensors").format_version == plain.format_version != 6
    with monkeypatch.context() as older:  # which would not know the field
        older.setattr("ndpp.laws.header.FORMAT_VERSION", 5)
        with pytest.raises(ModelFileError, match=r"it has format version [69]"):
            model_files.load(path)
    _rewrite_header(path, lambda m: m.update(nonempty="perhaps"))
    with pytest.raises(ModelFileError):
        model_files.load(path)
