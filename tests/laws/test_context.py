"""Weights that depend on context: every kind of mixture against enumeration, before and after every change, and in files."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import law_table
import ndpp
from law_table import BASES, CHANGES, KIND, NONEMPTY, TILTS, Base, Entry, Kind
from ndpp import Baskets, LowRankKernel, Mixture
from ndpp.errors import InvalidInputError, ModelFileError
from ndpp.laws import files
from ndpp.laws.header import NO_DIGEST, seal

LEVELS = {"store": ("1", "2"), "weekday": ("Friday", "Saturday", "Sunday")}
SHIFTS = np.array([[0.5, -1.0, 0.25], [0.0, 2.0, -0.75], [0.0, 0.0, 0.0], [-2.0, 0.0, 1.0], [1.0, 1.5, -1.0]])
MIXTURES = [KIND["mixture"], KIND["tied mixture"], KIND["families"]]
OTHER_BASES = [base for base in BASES if base.name in ("purely skew", "broken pairs", "two items")]
"""One without sets of odd size, one with a component of weight zero, and one with impossible items."""


def law_of(kind: Kind, base: Base = BASES[0]) -> Mixture:
    return kind.build(base).with_context(LEVELS, SHIFTS)


def weights_at(weights: np.ndarray, *rows: int) -> np.ndarray:
    """w_c exp(β_c), normalised."""
    found = weights * np.exp(SHIFTS[list(rows)].sum(axis=0))
    return found / found.sum()


def probabilities(law: Mixture) -> np.ndarray:
    return np.exp(law.log_probs(Baskets.from_lists(law_table.oracles.subsets(law.n_items), n_items=law.n_items)))


@pytest.mark.parametrize("kind", MIXTURES, ids=str)
def test_every_change_before_and_after_the_context_is_chosen(kind: Kind):
    """law.at(x) changed and law changed, then at(x), are both the enumerated distribution in this context."""
    n_met = 0
    for base in (BASES[0], *(OTHER_BASES if kind.name != "mixture" else ())):
        law, truth = law_of(kind, base), law_table.entries(kind, base)[0].truth
        plain = Entry(
            kind, base, (), law.at(store=2, weekday="Sunday"), replace(truth, weights=weights_at(truth.weights, 1, 4))
        )
        every = CHANGES[:: 3 if kind.name == "mixture" else 1] + TILTS + NONEMPTY  # kernels one by one take longer
        for change in ((), *(every if base is BASES[0] else TILTS[:2] + NONEMPTY[:2])):
            entry = law_table.changed(plain, change) if law_table.fits(change, base.n_items) else None
            later = entry and law_table.changed(plain._replace(law=law, truth=truth), change)
            if entry is None or later is None:
                continue
            n_met += 1
            after = later.law.at(weekday="Sunday").at(store=2)
            for found in (entry.law, after):
                assert probabilities(found) == pytest.approx(entry.truth.p, abs=1e-12), entry
                assert found.inclusion_probabilities() == pytest.approx(entry.truth.inclusions(), abs=1e-12), entry
                assert found.nonempty == any(verb == "without_empty" for verb, _ in change) * (
                    change[-1:] != (("condition", (1,)),)
                )
            off = np.abs(probabilities(later.law) - entry.truth.p).max()
            assert off > 1e-4 or len(later.law.weights) == 1  # a negative control: the context matters
    assert n_met > 12


@pytest.mark.parametrize("kind", MIXTURES, ids=str)
def test_what_is_not_known_takes_the_plain_weights(kind: Kind):
    law = law_of(kind)
    assert law.context == LEVELS
    assert law.at().weights == pytest.approx(law.weights, abs=1e-15)
    assert law.at(store="1").weights == pytest.approx(weights_at(law.weights, 0), abs=1e-15)
    assert law.at(store="1").context == {"weekday": LEVELS["weekday"]}
    assert law.at(store="9", town="Bath", unknown="skip").weights == pytest.approx(law.weights, abs=1e-15)
    assert law.at({"weekday": "Sunday"}, store=np.int64(2)).context == {}
    baskets, stores = Baskets.from_lists([[0], [0, 2], [1], []], n_items=6), [1, "2", 9, None]
    found = law.log_probs(baskets, context={"store": stores, "town": ["Bath"] * 4})
    laws = [law.at(store=1), law.at(store=2), law, law]
    assert found == pytest.approx([one.log_prob(basket) for one, basket in zip(laws, baskets)], rel=1e-12)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"store": 9}, r"unknown store '9'; the model knows '1', '2'\. unknown='skip' takes the plain weights"),
        ({"weekday": "sunday"}, "unknown weekday 'sunday'; did you mean 'Sunday'"),
        ({"weekday": None}, "unknown weekday ''"),
        ({"town": "Bath"}, "'town' is not a column of context of this model; it has 'store', 'weekday'"),
    ],
)
def test_unknown_contexts_are_refused(asked: dict[str, object], message: str):
    with pytest.raises(InvalidInputError, match=message):
        law_of(KIND["tied mixture"]).at(asked)


def test_laws_without_context():
    kernel = LowRankKernel(np.eye(2), np.eye(2))
    assert kernel.context == {}
    assert kernel.at(store=1, unknown="skip") is kernel.at() is kernel
    with pytest.raises(InvalidInputError, match=r"no context, so 'store' has no effect.*Fit one with context, or take"):
        kernel.at(store=1)


@pytest.mark.parametrize(
    ("levels", "shifts", "message"),
    [
        (LEVELS, SHIFTS[:, :2], "gate should have 3 columns, one per component; it has 2"),
        (LEVELS, SHIFTS[:4], r"a row of numbers for each of the 5 values of context; it is \(4, 3\)"),
        (LEVELS, SHIFTS * np.nan, "between −100 and 100"),
        (LEVELS, SHIFTS * 1e300, "between −100 and 100"),
        (LEVELS, SHIFTS.astype(int), "int64"),
        ({"store": ("1", "1", "2", "3", "4")}, SHIFTS, "'store' should be different words"),
        ({"store": ("", "1", "2", "3", "4")}, SHIFTS, "none of them empty"),
        ({"store": ()}, SHIFTS[:0], "values in each of them"),
        ({}, SHIFTS[:0], "should have columns"),
    ],
)
def test_absurd_gates_are_refused(tmp_path: Path, levels, shifts, message: str):
    """By the constructor, and in a file whose checksums are right."""
    law, path = law_of(KIND["tied mixture"]), tmp_path / "law.safetensors"
    with pytest.raises(InvalidInputError, match=message):
        law.with_context(levels, shifts)
    files.save(law, path)
    header, arrays = files.load_header(path), load_file(path) | {"gate": np.ascontiguousarray(shifts)}
    fields = header._asdict() | {"format": files.FORMAT, "crc32": files._crc32(arrays), "digest": NO_DIGEST}
    fields = {name: value for name, value in fields.items() if value is not None and name != "shards"}
    fields |= {name: json.dumps(fields[name]) for name in ("labels", "metadata", "names", "components")} | {
        "context": json.dumps(levels)
    }
    save_file(arrays, path, {name: str(value) for name, value in fields.items()})
    seal(path)
    with pytest.raises(ModelFileError, match=f"no valid kernel: .*{message}"):
        files.load(path)


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("kind", MIXTURES, ids=str)
def test_files_and_pickles_keep_the_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind, prepared: bool
):
    law, path = law_of(kind).without_empty(), tmp_path / "law.safetensors"
    ndpp.save(law.prepared() if prepared else law, path)
    assert files.load_header(path).format_version in ((7, 9) if prepared else (7,))
    expected = probabilities(law.at(store=2, weekday="Saturday"))
    for again in (ndpp.load(path), pickle.loads(pickle.dumps(law)), law.prepared()):
        assert again.context == LEVELS
        assert probabilities(again.at(store=2, weekday="Saturday")) == pytest.approx(expected, abs=1e-14)
    ndpp.save(law.at(store=2), path)  # one store, any weekday
    assert probabilities(ndpp.load(path).at(weekday="Saturday")) == pytest.approx(expected, abs=1e-14)
    with monkeypatch.context() as older:
        older.setattr("ndpp.laws.header.FORMAT_VERSION", 6)
        with pytest.raises(ModelFileError, match="it has format version 7"):
            ndpp.load(path)
    ndpp.save(law.at(store=2, weekday="Saturday"), path)  # no context is left, and so the version is as before
    assert files.load_header(path).format_version < 7
    assert probabilities(ndpp.load(path)) == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("context", ['["store"]', '{"store": "1"}', '{"store": [1, 2]}', "{"])
def test_headers_with_other_contexts_are_refused(tmp_path: Path, context: str):
    path = tmp_path / "law.safetensors"
    files.save(law_of(KIND["tied mixture"]), path)
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    for fields in ({"context": context}, {"format_version": "6"}):
        changed = {**header, "__metadata__": header["__metadata__"] | fields}
        text = json.dumps(changed).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])
        with pytest.raises(ModelFileError, match=r"header is damaged|nested"):
            files.load(path)


def test_some_components_keep_their_part_of_the_context():
    law = law_of(KIND["tied mixture"]).without_empty()
    chosen = law.only([0, 2]).at(store=2, weekday="Sunday")
    weights = weights_at(law.weights, 1, 4)[[0, 2]]
    assert chosen.weights == pytest.approx(weights / weights.sum(), abs=1e-14)
    assert chosen.nonempty
    assert law.normalized().at(store=2).weights == pytest.approx(law.at(store=2).weights)


@pytest.mark.parametrize("kind", MIXTURES, ids=str)
def test_draws_in_a_context(kind: Kind):
    """What the plain law has prepared serves its contexts, and changes no draw."""
    used, fresh = law_of(kind), law_of(kind)
    ways = [{}, {"given": [1], "size": 3}, {"limits": ndpp.Limit([0, 1, 2], most=1)}][
        : 1 if kind.name == "mixture" else 3
    ]
    for options in ways:
        used.sample(1, rng=0, **options)
    there, other = (law.at(store=2, weekday="Sunday") for law in (used, fresh))
    for options in ways:
        found = there.sample(40, rng=1, **options)
        assert found == other.sample(40, rng=1, **options), options
        assert found != used.sample(40, rng=1, **options), options


def test_shares_of_draws_in_a_context():
    law = law_of(KIND["tied mixture"])
    law.sample(1, rng=0)
    there = law.at(store=2, weekday="Sunday")
    shares = np.bincount(there.sample(1000, rng=2).indices, minlength=6) / 1000
    assert shares == pytest.approx(there.inclusion_probabilities(), abs=5 * 0.5 / np.sqrt(1000))
    assert np.abs(law.inclusion_probabilities() - shares).max() > 0.1


@pytest.mark.parametrize("kind", MIXTURES, ids=str)
def test_items_come_and_go_in_every_context(kind: Kind):
    law = law_of(kind).without_empty()
    more = law.add_items({"new": ["item 1 of 6", "item 3 of 6"]}, popularity=0.2, keep="sets")
    for one in (more.restrict(range(6)), more.remove(["new"]).rename({"item 0 of 6": "first"})):
        assert one.context == LEVELS
        there = one.at(store=2, weekday="Sunday")
        expected = probabilities(law.at(store=2, weekday="Sunday"))
        assert probabilities(there)[: len(expected)] == pytest.approx(expected, abs=1e-10)
