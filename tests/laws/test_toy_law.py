"""A law of one file: the probabilities of all sets in a table. It answers every verb, is drawn, saved, recommended and served."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import goodness
import ndpp
import oracles
from law_table import BASES, KIND, Base, Entry, Kind, Truth
from law_verbs import VERBS, applies
from ndpp import Baskets, answers
from ndpp._types import FloatArray, IntArray
from ndpp.errors import InvalidInputError, NoConditionalKernelError, PrecisionWarning, ZeroProbabilityError
from ndpp.laws.catalogue import Catalogue
from ndpp.laws.changes import Alike
from ndpp.laws.frame import ONE, Frame
from ndpp.laws.header import ModelHeader
from ndpp.laws.law import Law


class Table(Law):
    """P(S) ∝ ``table``, by bit mask."""

    parametrisation = "table"
    stored = {"table"}, set()
    _fields = "table", "catalogue", "frame"

    def __init__(self, table: FloatArray, labels: Sequence[str] | None = None, frame: Frame = ONE) -> None:
        n = len(table).bit_length() - 1
        self.table, self.catalogue, self.frame, self._known = (
            table / table.sum(),
            Catalogue(n, labels and tuple(labels)),
            frame,
            {},
        )

    def __repr__(self) -> str:
        return f"<Table over {self.n_items} items>"

    @property
    def masks(self) -> IntArray:
        return np.arange(len(self.table))

    @property
    def sizes(self) -> IntArray:
        return np.bitwise_count(self.masks).astype(np.int64)

    def _containing(self, ids: IntArray) -> Any:
        mask = oracles.mask_of(ids.tolist())
        return self.masks & mask == mask

    def _log_whole(self, baskets: Baskets) -> FloatArray:
        with np.errstate(divide="ignore"):
            return np.log(self.table[[oracles.mask_of(S.tolist()) for S in baskets]])[:, None]

    def _log_started(self, ids: IntArray, size: int | None) -> FloatArray:
        chosen = self._containing(ids) if size is None else self._containing(ids) & (self.sizes == size)
        with np.errstate(divide="ignore"):
            return np.log([self.table[chosen].sum()])

    @property
    def largest(self) -> IntArray:
        return np.array([self.sizes[self.table > 0].max()])

    def _condition(self, ids: IntArray) -> Table:
        chosen, table = self._containing(ids), np.zeros_like(self.table)
        table[self.masks[chosen] ^ oracles.mask_of(ids.tolist())] = self.table[chosen]
        if not table.any():
            raise ZeroProbabilityError("these items never occur together")
        if len(ids) == self.n_items:
            raise InvalidInputError("nothing is left")
        return Table(table, self.labels, self.frame._replace(nonempty=False))

    def _tilt(self, ids: IntArray, factors: FloatArray | None) -> Table:
        s = np.zeros(self.n_items)
        s[ids] = 1.0 if factors is None else factors
        if not len(ids):
            raise InvalidInputError("nothing is left")
        return Table(self.table * [np.prod(s[list(S)]) for S in oracles.subsets(self.n_items)], self.labels)

    def _with_alike(self, alike: Sequence[Alike]) -> Table:
        table = self.table
        for one in alike:  # a set with the new item is as likely as with the first that it is like
            swapped = np.zeros_like(table)
            with_it = self.masks[: len(table)] >> int(one.ids[0]) & 1 == 1
            swapped[np.flatnonzero(with_it) ^ (1 << int(one.ids[0]))] = table[with_it]
            table = np.concatenate([table, swapped])
        return Table(table)

    def _only_items(self, keep: IntArray) -> Table:
        return Table(self.table[[oracles.mask_of(keep[list(S)].tolist()) for S in oracles.subsets(len(keep))]])

    def _arrays(self) -> dict[str, Any]:
        return {"table": self.table}

    @classmethod
    def _from_arrays(cls, arrays: dict[str, Any], header: ModelHeader) -> Table:
        return cls(arrays["table"], header.labels)


def truth_of(base: Base) -> Truth:
    """The distribution of a mixture, as one component."""
    found = KIND["families"].truth(base)
    return Truth(np.ones(1), found.p[None], ("only",), found.left)


TOY = Kind("table", lambda base: Table(truth_of(base).p, base.labels), truth_of)


@cache
def entry_of(base: Base) -> Entry:
    return Entry(TOY, base, (), TOY.build(base), TOY.truth(base))


@pytest.mark.parametrize("nonempty", [False, True])
@pytest.mark.parametrize("base", [BASES[0], BASES[4]], ids=str)
def test_every_verb(base: Base, nonempty: bool):
    entry, failed = entry_of(base), []
    if nonempty:
        entry = entry._replace(law=entry.law.without_empty(), truth=entry.truth.without_empty())
    for name, check in VERBS.items():
        if applies(name, entry) and name not in ("log_mass", "marginal_kernel", "repr"):
            try:
                check(entry)
            except (AssertionError, NoConditionalKernelError) as error:
                failed.append(f"{name}: {error}")
    assert not failed, "\n".join(failed)


def test_a_wrong_table_is_noticed():
    entry = entry_of(BASES[0])
    wrong = entry._replace(law=Table(entry.truth.p[::-1].copy(), entry.base.labels))
    for name in ("log_probs", "size_distribution", "inclusion_probabilities", "condition", "recommend_by_lift"):
        with pytest.raises(AssertionError):
            VERBS[name](wrong)


def test_draws_under_conditions():
    law, truth = entry_of(BASES[0]).law, entry_of(BASES[0]).truth
    for size, given in product((None, 3), ((), (1,))):
        kept = truth.containing(given, size)
        expected = {S: p / truth.p[kept].sum() for S, p, k in zip(truth.sets, truth.p, kept) if k and p}
        goodness.assert_law(law.sample(500, size=size, given=given, rng=5).to_lists(), expected)


def test_it_is_saved_recommended_and_mixed(tmp_path: Path):
    law, path = entry_of(BASES[0]).law, tmp_path / "toy.safetensors"
    ndpp.save(law, path, metadata={"made": "by hand"})
    again = ndpp.load(path)
    assert isinstance(again, Table)
    assert np.array_equal(again.table, law.table)
    assert again.labels == law.labels
    both = ndpp.Mixture([law, law.tilt({0: 3.0})], [0.25, 0.75])
    ndpp.save(both, path)
    np.testing.assert_allclose(ndpp.load(path).log_probs([[0], [1, 2]]), both.log_probs([[0], [1, 2]]))
    best = law.recommend([1], n=2, exclude=[0])
    assert 0 not in best.items
    found = answers.recommend(law, [law.labels[1]], n=2, why=True)
    assert [one.item for one in found.items]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrecisionWarning)
        completed = answers.complete(law, [law.labels[1]], n=3, size=3, seed=1)
    assert all(len(one.items) == 3 and law.labels[1] in one.items for one in completed.baskets)


def test_it_is_served(tmp_path: Path):
    for name in ("fastapi", "uvicorn", "httpx"):
        pytest.importorskip(name, reason=f"needs {name}: pip install 'ndpp[dev]'")
    from ndpp.serve.app import create_app
    from ndpp.serve.model import Settings
    from servers import get, post, serving

    law, path = entry_of(BASES[0]).law, tmp_path / "toy.safetensors"
    basket = [law.labels[1]]
    ndpp.save(law, path)
    with serving(create_app(Settings(path))) as url:
        assert get(f"{url}/api/model").json()["n_items"] == law.n_items
        best = post(f"{url}/api/recommend", json={"basket": basket, "n": 3}).json()["items"]
        assert [one["item"] for one in best] == [one.item for one in answers.recommend(law, basket, n=3).items]
        chances = law.inclusion_probabilities(given=law.ids(basket))[law.ids([one["item"] for one in best])]
        assert [one["score"] for one in best] == pytest.approx(chances.tolist())
        log_prob = post(f"{url}/api/probability", json={"basket": basket}).json()["log_prob"]
        assert log_prob == pytest.approx(law.log_prob(law.ids(basket)))
        baskets = post(f"{url}/api/sample", json={"n": 4, "size": 3, "seed": 1}).json()["baskets"]
        assert [len(one["items"]) for one in baskets] == [3] * 4
        assert post(f"{url}/api/recommend", json={"basket": ["no such item"]}).status_code == 422
