"""New products: a tenth of the items is hidden from training, added afterwards, and looked for in test baskets.

A test basket with hidden items is cut: one of them, at random, is to be found, the items that the model knows are given, and other hidden
ones are left out. Candidates are the new items alone (*among new*: which new product goes with this basket), or all items that the basket
does not have (*among all*). Ways to place a new item:

- *like, by text*: ``law.add_items(ndpp.similar_items(law, new), keep="shares")``, the five nearest names;
- *like, by text, keeping sets*: the same with ``keep="sets"``, the default;
- *like, by last word*: the items whose names end in the same word, the nearest names where there is none: what a category would say;
- *features*: ``law.add_items(features=…, keep="shares")`` of a model fitted with ``item_features=ndpp.text_features(labels)``;
- *popularity*: the same list for every basket, without any model.

A shop has a guess how often a new product will be bought. Either it is right (*known*: the share of training baskets that the hidden item
was in before it was hidden), or it is that of similar items (*guessed*, the mean share of the items that it is like by text; for
*popularity* that, too, or the mean of the last word).

Up to 1,000 baskets are judged among the new items, and up to 250 of them among all items, which takes longer.

Fits take minutes to hours and may be made elsewhere: ``python -m ndpp_experiments.new_items FOLDER [--device cuda] [NAME …]`` writes the
models into a folder, and the experiment looks for them in the folder that ``NDPP_NEW_ITEMS`` names. Quick runs are on synthetic baskets.
"""

from __future__ import annotations

import argparse
import os
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import ndpp
from ndpp._types import FloatArray, IntArray
from ndpp.baskets import Baskets
from ndpp.datasets import load_baskets, make_baskets
from ndpp.errors import DataNotFoundError, InvalidInputError
from ndpp.laws import Law
from ndpp.laws.begun import Begun, parts
from ndpp_experiments.plots import effects
from ndpp_experiments.record import Finding, Result, Say

NAMES = {"groceries": "Groceries", "foodcom": "Food.com", "uk_retail": "UK Retail"}
FOLDER = "NDPP_NEW_ITEMS"
"""Environment variable that names the folder of fitted models."""
HIDDEN, TEST, TOP = 0.1, 0.1, 10
"""Shares of the items that are hidden and of the baskets to test on, and the length of a list."""
MAX_JUDGED, MAX_RANKED, MAX_SCORED = 1000, 250, 2000
"""Most test baskets that are completed with new items, with all items, and that are scored."""
NEGLIGIBLE = 1e-6
"""Components of a smaller posterior are left out of what ties change in the scores of a basket."""
QUICK = {"n_missions": 3, "max_epochs": 2, "rank": 4}
SYNTHETIC = ("apple", "pear", "plum", "milk", "cream", "bread", "roll", "cake", "tea", "juice")


class Split(NamedTuple):
    """Training baskets without hidden items, over the other items; and test baskets over all items, the hidden ones at the end."""

    train: Baskets
    test: Baskets
    labels: tuple[str, ...]
    known: IntArray
    shares: FloatArray
    """Share of the training baskets that each item was in, before it was hidden."""

    @property
    def new(self) -> tuple[str, ...]:
        """The labels of the hidden items."""
        return self.labels[len(self.known) :]


class Row(NamedTuple):
    """One way to place new items: mean percentile rank, share of hidden items in the first ten, and how far the former is above that of
    popularity for the same baskets, with standard errors."""

    data: str
    method: str
    popularity: str
    among: str
    mpr: float
    mpr_error: float
    hit_rate: float
    hit_error: float
    gain: float
    gain_error: float
    baskets: int
    candidates: int


class Fit(NamedTuple):
    """A model of the known items: mean log-likelihood of what test baskets have of them, with a standard error."""

    data: str
    model: str
    items: int
    hidden: int
    baskets: int
    log_likelihood: float
    error: float


def measure(*, quick: bool, seed: int, say: Say) -> Result:
    """Place hidden items in every way, and rank them for test baskets."""
    folder = os.environ.get(FOLDER)
    rows, fits = [], []
    for name in ("synthetic",) if quick else NAMES:
        try:
            split = split_of(name, seed)
        except DataNotFoundError:
            say(f"{name}: no data")
            continue
        models = {}
        for features in (False, True):
            path = Path(folder or "") / f"{name}{'.features' * features}.safetensors"
            if folder is None or not path.exists():
                models[features] = Law.required(_fitted(split, features, QUICK if quick else {}, seed=seed))
                continue
            models[features] = ndpp.load(path)
            if models[features].labels != split.train.labels:
                raise InvalidInputError(f"{path} was fitted with other hidden items; fit it with the same seed")
        say(f"{name}: models are there")
        fits += [_judged_fit(name, split, models[features], features) for features in (False, True)]
        rows += judged(NAMES.get(name, name), split, models[False], models[True], seed, say)
    findings = [
        Finding(f"{row.data}, {row.method}, popularity {row.popularity}, among {row.among}: MPR, hit rate@{TOP}", "",
                f"{row.mpr:.1f} ± {row.mpr_error:.1f}, {row.hit_rate:.3f} ± {row.hit_error:.3f}")
        for row in rows
    ]  # fmt: skip
    findings += [
        Finding(f"{one.data}: log-likelihood of test baskets of known items, {one.model}", "",
                f"{one.log_likelihood:.3f} ± {one.error:.3f}")
        for one in fits
    ]  # fmt: skip
    gains = [
        (f"{row.data}: {row.method}", row.gain, row.gain_error)
        for row in rows
        if (row.among, row.popularity) == ("all", "known") and row.method != "popularity"
    ]
    figure = effects(gains, xlabel="MPR of hidden items among all items, minus that by popularity alone")
    return Result({"hidden": HIDDEN, "top": TOP}, findings, {"": rows, "fits": fits}, figure, (NOTE,))


NOTE = (
    "MPR is the mean percentile rank of the hidden item, 50 by chance; ± are standard errors over test baskets. Popularity *known* is the "
    "share of training baskets that the item was in before it was hidden."
)


def split_of(name: str, seed: int) -> Split:
    """Return the baskets of a data set, with items hidden."""
    rng = np.random.default_rng([seed, 35])
    baskets = _synthetic(seed) if name == "synthetic" else load_baskets(name)
    order, n = rng.permutation(baskets.n_items), baskets.n_items
    counts = np.bincount(baskets.indices, minlength=n)
    hidden = np.sort(order[counts[order] > 0][: max(2, round(HIDDEN * n))])
    known = np.delete(np.arange(n), hidden)
    place, labels = np.empty(n, np.int64), baskets.labels or ()
    place[np.concatenate([known, hidden])] = np.arange(n)
    names = tuple(labels[i] for i in (*known.tolist(), *hidden.tolist()))
    parts = baskets.split(0, round(TEST * len(baskets)), rng=rng)
    train, test = (
        Baskets.from_lists([np.sort(place[basket]) for basket in part], n_items=n) for part in (parts.train, parts.test)
    )
    shares = np.bincount(train.indices, minlength=n) / len(train)
    cut = [kept for basket in train if len(kept := basket[basket < len(known)])]
    made = Baskets.from_lists(cut, n_items=len(known))
    made = Baskets._trusted(made.indptr, made.indices, len(known), names[: len(known)])
    return Split(made, test, names, known, shares)


def _synthetic(seed: int) -> Baskets:
    made = make_baskets(1500, n_items=40, rng=seed).baskets
    labels = tuple(f"{SYNTHETIC[i % 10]} juice {i}" if i % 2 else f"brown {SYNTHETIC[i % 10]} {i}" for i in range(40))
    return Baskets._trusted(made.indptr, made.indices, 40, labels)


def _fitted(split: Split, features: bool, settings: dict[str, Any], *, seed: int) -> Any:
    own = {"item_features": ndpp.text_features(split.train.labels or ())} if features else {}
    return ndpp.MixtureNDPP(random_state=seed, **own, **settings).fit(split.train)


def _judged_fit(name: str, split: Split, law: Any, features: bool) -> Fit:
    cut = [kept for basket in split.test[:MAX_SCORED] if len(kept := basket[basket < len(split.known)])]
    values = law.log_probs(Baskets.from_lists(cut, n_items=len(split.known)))
    error = float(values.std() / np.sqrt(len(values)))
    sizes = len(split.labels), len(split.new), len(split.train)
    return Fit(NAMES.get(name, name), "with features" if features else "plain", *sizes, float(values.mean()), error)


class Cases(NamedTuple):
    """Baskets to complete: what is given, and the hidden item that is to be found."""

    given: Baskets
    wanted: IntArray


def judged(data: str, split: Split, plain: Any, featured: Any, seed: int, say: Say) -> list[Row]:
    """Return how high the hidden items are ranked."""
    rng, n_known = np.random.default_rng([seed, 36]), len(split.known)
    found = [basket for basket in split.test if (basket >= n_known).any() and (basket < n_known).any()]
    found = [found[i] for i in rng.permutation(len(found))[:MAX_JUDGED]]
    wanted = np.array([rng.choice(basket[basket >= n_known]) for basket in found])
    cases = Cases(Baskets.from_lists([basket[basket < n_known] for basket in found], n_items=n_known), wanted)
    rows_of = partial(_rows, data, cases, {})
    text, ends = ndpp.similar_items(plain, split.new), _by_last_word(plain, split.new)
    known_shares = dict(zip(split.new, split.shares[n_known:].clip(1e-6).tolist()))
    shares = dict(zip(plain.labels, split.shares))
    guesses = {
        how: {label: max(sum(w * shares[old] for old, w in like[label].items()), 1e-6) for label in split.new}
        for how, like in (("by text", text), ("by last word", ends))
    }
    vectors, rows = dict(zip(split.new, ndpp.text_features(split.new))), []
    for how, by_text, by_word in (
        ("known", known_shares, known_shares),
        ("guessed", guesses["by text"], guesses["by last word"]),
    ):
        for method, popularity in (("popularity", by_text), ("popularity of the last word", by_word)):
            if method == "popularity" or how == "guessed":
                one = np.concatenate([split.shares[:n_known], list(popularity.values())])
                rows += rows_of(method, how, np.broadcast_to(one, (len(wanted), len(one))))
    for model, ways in (
        (plain, {"like, by text": text, "like, by last word": ends}),
        (featured, {"features": None}),
    ):
        posterior, ranked = posteriors_and_scores(model, cases.given, MAX_RANKED)
        say(f"{data}: scores of {len(ranked)} baskets")
        for method, like in ways.items():
            own = guesses["by last word" if like is ends else "by text"]
            for how, popularity in (("known", known_shares), ("guessed", own)):
                like_what = {"features": vectors} if like is None else {"like": like}
                law = model.add_items(**like_what, popularity=popularity)
                new = posterior @ law._inclusions_of(np.arange(n_known, law.n_items))
                rows += rows_of(method, how, new, np.hstack([ranked, new[: len(ranked)]]))
    law = plain.add_items(text, known_shares, keep="sets")
    given = Baskets._trusted(cases.given.indptr, cases.given.indices, law.n_items, None)
    posterior, ranked = posteriors_and_scores(law, given, MAX_RANKED)
    new = posterior @ law._inclusions_of(np.arange(n_known, law.n_items))
    rows += rows_of("like, by text, keeping sets", "known", new, ranked)
    say(f"{data}: {len(wanted)} baskets are judged")
    return rows


class _Begun(Begun):
    """Baskets whose scores leave out ties in components of a negligible posterior, to save most of the time."""

    def _components(self, i: int, least: float) -> IntArray:
        return np.flatnonzero(self.posterior[i] > max(least, NEGLIGIBLE))


def posteriors_and_scores(law: Any, given: Baskets, n_scored: int) -> tuple[FloatArray, FloatArray]:
    """Return P(c | J ⊆ S) of all baskets J, and P(a ∈ S | J ⊆ S) of the first ones, up to ``NEGLIGIBLE`` components.

    With ``keep="shares"``, new items change neither, and have no ties: their scores are Σ_c P(c | J) P_c(a ∈ S).
    """
    posterior, scores = np.empty((len(given), len(law.weights))), np.empty((min(n_scored, len(given)), law.n_items))
    for which in parts(law, given):
        posterior[which] = Begun(law, given[which]).posterior
    first = given[: len(scores)]
    for which in parts(law, first):
        scores[which] = _Begun(law, first[which]).scores()
    return posterior, scores


def _rows(
    data: str, cases: Cases, beside: dict[tuple[str, str], FloatArray], method: str, how: str, scores: FloatArray,
    of_all: FloatArray | None = None,
) -> list[Row]:  # fmt: skip
    """Return how high the hidden items are among new items, by scores of these or of all items, and of fewer baskets among all items.

    ``beside`` are the percentiles of the first method, popularity.
    """
    n_known, rows = cases.given.n_items, []
    of_all = scores[:MAX_RANKED] if of_all is None else of_all
    new = scores[:, n_known:] if scores.shape[1] == of_all.shape[1] else scores
    for among, found, first in (("new", new, n_known), ("all", of_all, 0)):
        ranks, total = _ranks(found, cases, first)
        percentile, hit = 100 * (1 - ranks / np.maximum(total - 1, 1)), ranks < TOP
        gain, error = percentile - beside.setdefault((how, among), percentile), 1 / np.sqrt(len(ranks))
        mean, spread = ([float(v) for v in of((percentile, hit, gain), axis=1)] for of in (np.mean, np.std))
        errors = [error * one for one in spread]
        rows.append(Row(data, method, how, among, mean[0], errors[0], mean[1], errors[1], mean[2], errors[2],
                        len(ranks), int(np.median(total))))  # fmt: skip
    return rows


def _ranks(scores: FloatArray, cases: Cases, first: int) -> tuple[FloatArray, FloatArray]:
    """Return how many candidates, items from ``first`` on, are before the wanted one, ties counting half, and how many there are."""
    ranks, total = np.empty(len(scores)), np.empty(len(scores))
    for i, (row, item) in enumerate(zip(scores, (cases.wanted - first).tolist())):
        own = row if first else np.delete(row, cases.given[i])
        ranks[i] = (own > row[item]).sum() + ((own == row[item]).sum() - 1) / 2
        total[i] = len(own)
    return ranks, total


def _by_last_word(law: Any, new: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """Return the items whose names end in the same word, or the nearest names where there is none."""
    word = {label: label.casefold().split()[-1] for label in (*law.labels, *new)}
    ends = {word[label] for label in law.labels}
    those = [label for label in new if word[label] in ends]
    others = [label for label in new if word[label] not in ends]
    found = ndpp.similar_items(law, those, by=word) | ndpp.similar_items(law, others)
    return {label: found[label] for label in new}


def main() -> None:
    """Fit the models of some data sets, without and with features, and write them to a folder."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=list(NAMES), help=f"data sets; by default {', '.join(NAMES)}")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.names:
        split = split_of(name, options.seed)
        for features in (False, True):
            path, began = options.folder / f"{name}{'.features' * features}.safetensors", time.perf_counter()
            if path.exists():
                continue
            model = _fitted(split, features, {"device": options.device, "progress": print}, seed=options.seed)
            ndpp.save(model, path)
            print(f"{path}: validation {model.validation_score_:.4f}, {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
