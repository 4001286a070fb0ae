"""Laws that leave out the empty set: samples of every kind and by every sampler, on the CPU and by the engines of a GPU."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import goodness
from law_table import BASES, KIND, KINDS, Entry, Kind, Truth, changed, entries
from ndpp import Limit
from ndpp.errors import BudgetExceededError, ImpossibleLimitError, ImpossibleSizeError
from ndpp.samplers import Exact
from ndpp.samplers import base as samplers_base
from ndpp.samplers.proposer import Proposer
from ndpp.samplers.registry import SAMPLERS, Request

every_kind = pytest.mark.parametrize("kind", KINDS, ids=str)
DRAWS = 500


@cache
def entry_of(kind: Kind) -> Entry:
    """A law that is empty quite often, and its truth without the empty set."""
    plain = entries(kind, BASES[0])[0]
    factors = dict.fromkeys(range(6), 0.05 if "kernel" in kind.name else 0.1)
    rarer = plain._replace(law=plain.law.tilt(factors), truth=plain.truth.tilt(factors))
    entry = changed(rarer, (("without_empty", ()),))
    assert entry is not None
    assert float(np.max(entry.truth.empty)) > 0.2
    return entry


def law_of(truth: Truth, keep: np.ndarray | None = None) -> dict[tuple[int, ...], float]:
    p = truth.p if keep is None else np.where(keep, truth.p, 0.0)
    return {S: float(chance / p.sum()) for S, chance in zip(truth.sets, p) if chance > 0}


@every_kind
def test_no_sample_is_empty(kind: Kind):
    entry = entry_of(kind)
    goodness.assert_law(entry.law.sample(DRAWS, rng=1), law_of(entry.truth))
    if KINDS.index(kind) % 2:
        goodness.assert_law(entry.law.sample(DRAWS, exclude=[4], rng=2), law_of(entry.truth.exclude((4,))))
    else:
        goodness.assert_law(entry.law.sample(DRAWS, given=[4], rng=3), law_of(entry.truth, entry.truth.containing([4])))
    with pytest.raises(AssertionError, match="probability zero were drawn"):
        goodness.assert_law(entry.law.with_empty().sample(DRAWS, rng=1), law_of(entry.truth))


@every_kind
def test_limits(kind: Kind):
    entry = entry_of(kind)
    few = entry.truth.sizes <= 2
    goodness.assert_law(entry.law.sample(DRAWS, limits=Limit(range(6), most=2), rng=4), law_of(entry.truth, few))
    with pytest.raises(ImpossibleLimitError):
        entry.law.sample(1, limits=Limit(range(6), most=0))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.is_mixture], ids=str)
def test_one_component(kind: Kind):
    entry = entry_of(kind)
    only = Truth(np.ones(1), entry.truth.given_component[1:2])
    goodness.assert_law(entry.law.sample(DRAWS, component="two", rng=5), law_of(only))


@pytest.mark.parametrize("spec", [spec for spec in SAMPLERS if spec.draws(None)], ids=lambda spec: spec.name)
def test_every_sampler_leaves_out_the_empty_set(spec):
    entry = entry_of(KIND["kernel"])
    draws = spec.prepare(entry.law, Request()).sample(DRAWS if spec.exact else 60, rng=6)
    assert (draws.baskets.sizes > 0).all()
    if spec.exact:
        goodness.assert_law(draws.baskets, law_of(entry.truth))


def test_a_sample_depends_on_seed_and_index_alone():
    sampler = entry_of(KIND["tied mixture"]).law.sampler()
    whole = sampler.sample(60, rng=7)
    assert sampler.sample(60, rng=7, n_jobs=2).baskets == whole.baskets
    assert sampler.sample(5, rng=7, first=30).baskets == whole.baskets[30:35]
    plain = entry_of(KIND["tied mixture"]).law.with_empty().sampler().sample(60, rng=7).baskets
    same = [a.tolist() == b.tolist() for a, b in zip(plain, whole.baskets) if len(a)]
    assert all(same)
    assert (whole.info["proposals"][plain.sizes == 0] > 1).all()


@every_kind
def test_no_set_has_no_item(kind: Kind):
    law = entry_of(kind).law
    for ask in (
        law.check_size,
        lambda k: law.sample(size=k),
        law.inclusion_probabilities,
        lambda k: law.log_prob([], k),
    ):
        with pytest.raises(ImpossibleSizeError, match="leaves out the empty set"):
            ask(0)


@every_kind
def test_items_may_be_rare(kind: Kind, monkeypatch: pytest.MonkeyPatch):
    entry = entry_of(kind)
    law, truth = entry.law.tilt(np.full(6, 1e-7)), entry.truth.tilt(dict.fromkeys(range(6), 1e-7))
    sampler = law.sampler()
    assert isinstance(sampler, Proposer)
    assert sampler.is_tilted
    goodness.assert_law(sampler.sample(DRAWS, rng=8).baskets, law_of(truth))
    monkeypatch.setattr(samplers_base, "MAX_EMPTY", 5)
    if kind.name == "kernel":
        with pytest.raises(BudgetExceededError, match="all of them empty"):
            Exact.prepare(law).sample(1, rng=0)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.name != "kernel with background"], ids=str)
def test_engines(kind: Kind):
    pytest.importorskip("torch", reason="needs torch: pip install 'ndpp[gpu]'")
    from devices import drawn_by
    from ndpp.samplers.gpu import laws

    entry = entry_of(kind)
    sampler = drawn_by(laws, "cpu", entry.law.sampler())
    draws = sampler.sample(DRAWS, rng=9)
    goodness.assert_law(draws.baskets, law_of(entry.truth))
    assert sampler.sample(5, rng=9, first=30).baskets == draws.baskets[30:35]
    assert (draws.info["proposals"] > 0).all()
    with pytest.raises(AssertionError, match="probability zero were drawn"):
        goodness.assert_law(
            drawn_by(laws, "cpu", entry.law.with_empty().sampler()).sample(DRAWS, rng=9).baskets, law_of(entry.truth)
        )
