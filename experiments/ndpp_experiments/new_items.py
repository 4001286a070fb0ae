"""New products: a tenth of the items is hidden from training, added afterwards, and looked for in test baskets.

A test basket with hidden items is cut: one of them, at random, is to be found, the items that the model knows are given, and other hidden
ones are left out. Candidates are the new items alone (*among new*: which new product goes with this basket), or all items that the basket
does not have (*among all*). Ways to place a new item:

- *like, by text*: ``law.add_items(ndpp.similar_items(law, new))``, the five nearest names;
- *like, by last word*: the items whose names end in the same word, the nearest names where there is none: what a category would say;
- *features*: ``law.add_items(features=…)`` of a model fitted with ``item_features=ndpp.text_features(labels)``;
- *popularity*: the same list for every basket, without any model.

A shop has a guess how often a new product will be bought. Either it is right (*known*: the share of training baskets that the hidden item
was in before it was hidden), or it is that of similar items (*guessed*, the mean share of the items that it is like by text; for
*popularity* that, too, or the mean of the last word).

Fits take minutes to hours and may be made elsewhere: ``python -m ndpp_experiments.new_items FOLDER [--device cuda] [NAME …]`` writes the
models into a folder, and the experiment looks for them in the folder that ``NDPP_NEW_ITEMS`` names. Quick runs are on synthetic baskets.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import ndpp
from ndpp._types import FloatArray, IntArray
from ndpp.baskets import Baskets
from ndpp.datasets import load_baskets, make_baskets
from ndpp.errors import DataNotFoundError, InvalidInputError
from ndpp.laws import Law
from ndpp_experiments.plots import Bar, rejections
from ndpp_experiments.record import Finding, Result, Say

NAMES = {"groceries": "Groceries", "foodcom": "Food.com", "uk_retail": "UK Retail"}
FOLDER = "NDPP_NEW_ITEMS"
"""Environment variable that names the folder of fitted models."""
HIDDEN, TEST, MOST_JUDGED, MOST_SCORED, TOP = 0.1, 0.1, 1000, 2000, 10
"""Shares of the items that are hidden and of the baskets to test on, most test baskets that are completed and scored, length of a list."""
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
    """One way to place new items: mean percentile rank and share of hidden items in the first ten, with standard errors."""

    data: str
    method: str
    popularity: str
    among: str
    mpr: float
    mpr_error: float
    hit_rate: float
    hit_error: float
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
                models[features] = Law.of(_fitted(split, features, QUICK if quick else {}, seed=seed))
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
    bars = [
        Bar(row.data, row.method, row.hit_rate, panel=f"popularity {row.popularity}")
        for row in rows
        if row.among == "all"
    ]
    figure = rejections(bars, xlabel=f"share of hidden items in the first {TOP} of all items")
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
    cut = [kept for basket in split.test[:MOST_SCORED] if len(kept := basket[basket < len(split.known)])]
    values = law.log_probs(Baskets.from_lists(cut, n_items=len(split.known)))
    error = float(values.std() / np.sqrt(len(values)))
    sizes = len(split.labels), len(split.new), len(split.train)
    return Fit(NAMES.get(name, name), "with features" if features else "plain", *sizes, float(values.mean()), error)


def judged(data: str, split: Split, plain: Any, featured: Any, seed: int, say: Say) -> list[Row]:
    """Return how high the hidden items are ranked."""
    rng, n_known = np.random.default_rng([seed, 36]), len(split.known)
    cases = [basket for basket in split.test if (basket >= n_known).any() and (basket < n_known).any()]
    cases = [cases[i] for i in np.sort(rng.permutation(len(cases))[:MOST_JUDGED])]
    wanted = np.array([rng.choice(basket[basket >= n_known]) for basket in cases])
    given = Baskets.from_lists([basket[basket < n_known] for basket in cases], n_items=len(split.labels))
    text, ends = ndpp.similar_items(plain, split.new), _by_last_word(plain, split.new)
    known_shares = dict(zip(split.new, split.shares[n_known:].clip(1e-6)))
    shares = dict(zip(plain.labels, split.shares))
    guesses = {
        how: {label: sum(w * shares[old] for old, w in like[label].items()) for label in split.new}
        for how, like in (("by text", text), ("by last word", ends))
    }
    guesses = {how: {label: max(p, 1e-6) for label, p in own.items()} for how, own in guesses.items()}
    vectors = dict(zip(split.new, ndpp.text_features(split.new)))
    ways: dict[tuple[str, str], Any] = {}
    for how, popularity in (("known", known_shares), ("guessed", guesses["by text"])):
        ways["like, by text", how] = plain.add_items(text, popularity)
        ways["like, by last word", how] = plain.add_items(
            ends, guesses["by last word"] if how == "guessed" else popularity
        )
        ways["features", how] = featured.add_items(features=vectors, popularity=popularity)
    ways["popularity", "known"] = known_shares
    ways["popularity", "guessed"] = guesses["by text"]
    ways["popularity of the last word", "guessed"] = guesses["by last word"]
    rows = []
    for (method, how), law in ways.items():
        if isinstance(law, dict):
            one = np.concatenate([split.shares[:n_known], list(law.values())])
            scores = np.broadcast_to(one, (len(cases), len(one)))
        else:
            scores = ndpp.continuation_scores_many(law, given)
        say(f"{data}: {method}, {how}")
        for among in ("new", "all"):
            ranks, total = _ranks(scores, given, wanted, n_known if among == "new" else 0)
            percentile, hit = 100 * (1 - ranks / np.maximum(total - 1, 1)), ranks < TOP
            error = 1 / np.sqrt(len(ranks))
            rows.append(Row(data, method, how, among, float(percentile.mean()), float(percentile.std() * error), float(hit.mean()),
                            float(hit.std() * error), len(ranks), int(np.median(total))))  # fmt: skip
    return rows


def _ranks(scores: FloatArray, given: Baskets, wanted: IntArray, first: int) -> tuple[FloatArray, FloatArray]:
    """Return how many candidates are before the wanted one, ties counting half, and how many candidates there are."""
    ranks, total = np.empty(len(wanted)), np.empty(len(wanted))
    for i, (row, item) in enumerate(zip(scores, wanted.tolist())):
        candidates = np.setdiff1d(np.arange(first, scores.shape[1]), given[i])
        own = row[candidates]
        ranks[i] = (own > row[item]).sum() + ((own == row[item]).sum() - 1) / 2
        total[i] = len(candidates)
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
