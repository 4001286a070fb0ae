"""Test log-likelihood of ``MixtureNDPP`` on the data of papers about tractable density models, beside that of circuits.

The data are Amazon's baby registries, fifteen categories, and nine of the binary data sets on which density estimators are compared since
[Lowd and Davis, *Learning Markov network structure with decision trees*, ICDM 2010], in their public splits; a row of zeros and ones is the
set of its ones. The published figures are those of SimplePGC [Zhang, Juba and Van den Broeck, *Probabilistic generating circuits*, ICML
2021], mean log-likelihoods of the test sets in nats. Models are fitted with the defaults: validation sets decide when training ends, and
test sets are looked at once, at the end. Quick runs are about validation sets. The folders ``amazon15`` and ``debd`` in that of
``NDPP_DATA`` hold ``apparel.train.baskets.gz``, ``nltcs.valid.baskets.gz`` and so on; what is not there is left out, and without either
the experiment runs on synthetic baskets.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from ndpp.baskets import Baskets
from ndpp.datasets import load_baskets, make_baskets
from ndpp.learning import MixtureNDPP
from ndpp.metrics import independent_items
from ndpp_experiments.plots import Bar, rejections
from ndpp_experiments.record import Finding, Result, Say

PUBLISHED = {
    "apparel": -9.10, "bath": -8.29, "bedding": -8.41, "carseats": -4.64, "diaper": -9.72, "feeding": -11.17, "furniture": -4.34,
    "gear": -9.04, "gifts": -3.47, "health": -7.24, "media": -7.69, "moms": -3.53, "safety": -4.28, "strollers": -5.00, "toys": -7.62,
}  # fmt: skip
"""Mean test log-likelihood of SimplePGC."""
BINARY = ("nltcs", "plants", "baudio", "jester", "bnetflix", "accidents", "pumsb_star", "dna", "bbc")
FOLDERS = {"amazon15": tuple(PUBLISHED), "debd": BINARY}
LARGE = 10
"""Sets of more items than this, on average, are learned on a GPU if there is one."""
QUICK, QUICK_REGISTRIES, EPOCHS = ("gifts", "moms"), 150, 1
"""Categories of a quick run, training registries of each, and epochs."""
MODEL = "MixtureNDPP"


class Registry(NamedTuple):
    """One data set: mean log-likelihood of its test sets, of its validation sets in quick runs, with a standard error."""

    category: str
    items: int
    train: int
    judged: int
    log_likelihood: float
    error: float
    published: float | None
    independent: float
    validation: float
    missions: int
    seconds: float


def measure(*, quick: bool, seed: int, say: Say) -> Result:
    """Fit every category and evaluate it."""
    found = []
    for category, train, validation, test in _splits(quick, seed):
        found.append(_fitted(category, train, validation, validation if quick else test, quick, seed))
        say(f"{category}: {found[-1].log_likelihood:.3f}, in {found[-1].seconds:.0f} s")
    return result_of(found, quick)


def result_of(found: list[Registry], quick: bool = False) -> Result:
    """Return the table of some data sets, and what it says."""
    compared = [one for one in found if one.published is not None and not quick]
    findings = [
        Finding(
            f"{one.category}: mean {'validation' if quick else 'test'} log-likelihood",
            "" if one.published is None or quick else f"{one.published:.2f}",
            f"{one.log_likelihood:.3f} ± {one.error:.3f} (independent items {one.independent:.3f})",
            one.log_likelihood > one.published if one in compared and one.published is not None else None,
        )
        for one in found
    ]
    if compared:
        better = sum(one.log_likelihood > (one.published or 0.0) for one in compared)
        text = f"on {better} of {len(compared)}"
        findings.append(Finding("`MixtureNDPP` above the published figure", "", text, better >= 0.8 * len(compared)))
    shown = compared or found
    bars = [Bar(one.category, MODEL, max(0.0, one.log_likelihood - one.independent)) for one in shown]
    bars += [Bar(one.category, "SimplePGC", (one.published or 0.0) - one.independent) for one in compared]
    bars.sort(key=lambda bar: bar.group)
    figure = rejections(bars, xlabel="nats per set above independent items")
    return Result({"model": f"{MODEL}, defaults"}, findings, {"": found}, figure, [NOTE])


NOTE = (
    "Published figures are those of SimplePGC (H. Zhang, B. Juba, G. Van den Broeck, *Probabilistic generating circuits*, ICML 2021), on "
    "the same split. ± is the standard error over sets. Everything was chosen on validation sets."
)


def _splits(quick: bool, seed: int) -> Iterator[tuple[str, Baskets, Baskets, Baskets]]:
    """Yield the name and the training, validation and test sets of each data set; synthetic ones where there are no others."""
    root, there = Path(os.environ.get("NDPP_DATA", "")), False
    for folder, names in FOLDERS.items():
        for name in names:
            if (root / folder / f"{name}.train.baskets.gz").is_file() and (not quick or name in QUICK):
                there = True
                parts = [load_baskets(f"{name}.{part}", folder=root / folder) for part in ("train", "valid", "test")]
                n_items = max(part.n_items for part in parts)
                train, validation, test = (Baskets.from_lists(part.to_lists(), n_items=n_items) for part in parts)
                yield name, train, validation, test
    for i in range(0 if there else 2):
        made = make_baskets(1500, 20 + 5 * i, mean_size=2.0, rng=[seed, i]).baskets.select(min_size=1)
        yield f"synthetic {i + 1}", *made.split(200, 400, rng=seed)


def _fitted(category: str, train: Baskets, validation: Baskets, judged: Baskets, quick: bool, seed: int) -> Registry:
    began, options = time.perf_counter(), {"max_epochs": EPOCHS} if quick else {}
    device = "cuda" if train.sizes.mean() > LARGE and torch.cuda.is_available() else "cpu"
    model = MixtureNDPP(random_state=seed, device=device, **options).fit(
        train[:QUICK_REGISTRIES] if quick else train, validation=validation
    )
    seconds, values = time.perf_counter() - began, model.score_samples(judged)
    return Registry(
        category, train.n_items, len(train), len(judged), float(values.mean()), float(values.std() / np.sqrt(len(values))),
        PUBLISHED.get(category), float(independent_items(train).log_likelihoods(judged).mean()),
        float(model.validation_score_), len(model.law_.weights), seconds,
    )  # fmt: skip
