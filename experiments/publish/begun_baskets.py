"""What finds the rest of a basket that has begun, and how many bestsellers it lists; and how long rankings of many baskets take.

Some items of a held-out basket are given, and the best five of the others are listed: by completion, and by P(a | J) / P(a)^γ, which is
continuation for γ = 0 and lift for γ = 1. *Precision* is the part of the list that is in the rest of the basket, *bestsellers* the part
that is among the ten best-selling items of the training baskets. γ is chosen on validation baskets: the largest that loses at most 4 %
of the best precision on every data set. The test baskets are looked at once, with the chosen γ.

    python experiments/publish/begun_baskets.py groceries.baskets.gz uk_retail.baskets.gz=uk_retail.safetensors [-o FILE.json]

A data set is a file with the item ids of a basket per line; a model that follows ``=`` is loaded instead of being fitted with the
default settings. ``--times BASKETS`` measures :func:`ndpp.recommend_many` on begun test baskets instead.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import threadpoolctl

from ndpp import Baskets, MixtureNDPP, Ranking, load, recommend_many
from ndpp_experiments.record import machine

GIVEN, LISTED, BESTSELLERS, LOSS, SEED = (1, 2, 3, 5), 5, 10, 0.04, 0
GAMMAS = (0.0, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 1.0)
BULK: dict[str, dict[str, Any]] = {
    "`continuation`": {},
    "`continuation`, `damping=0`": {"damping": 0.0},
    "`lift`": {"ranking": "lift"},
    "`completion`": {"ranking": "completion"},
}
"""Rankings that are timed, with their parameters."""


class Data(NamedTuple):
    """A data set in three parts, and the model of the first."""

    name: str
    train: Baskets
    validation: Baskets
    test: Baskets
    law: Any


class Begun(NamedTuple):
    """Baskets of which some items are given, and their other items."""

    given: Baskets
    rest: list[set[int]]


def read(argument: str) -> Data:
    """Return the data set of a file, with the model that follows ``=`` or a new one."""
    path, _, model = argument.partition("=")
    with gzip.open(path, "rt") as file:
        baskets = Baskets.from_lists([[int(item) for item in line.split()] for line in file])
    n_held_out = min(2000, len(baskets) // 10)
    train, validation, test = baskets.split(n_held_out, n_held_out, rng=0)
    if model:
        law = load(model)
    else:
        law = MixtureNDPP(random_state=0, validation_fraction=0.1).fit(train).law_
    if law.n_items != baskets.n_items:
        raise SystemExit(f"{model} has {law.n_items} items, and {path} has {baskets.n_items}")
    return Data(Path(path).name.split(".")[0], train, validation, test, law)


def begin(baskets: Baskets, n_given: int, most: int) -> Begun:
    """Return up to ``most`` baskets of at least two items more than are given."""
    rng = np.random.default_rng([SEED, n_given])
    long_enough = np.flatnonzero(baskets.sizes >= n_given + 2)
    chosen = [rng.permutation(baskets[i]) for i in rng.permutation(long_enough)[:most]]
    given = Baskets.from_lists([basket[:n_given] for basket in chosen], n_items=baskets.n_items)
    return Begun(given, [set(basket[n_given:].tolist()) for basket in chosen])


def lists(law: Any, given: Baskets, gammas: tuple[float, ...]) -> dict[str, list[Any]]:
    """Return the best items of each basket by completion and by P(a | J) / P(a)^γ."""
    from ndpp.laws.begun import Begun as Scorer
    from ndpp.laws.begun import parts
    from ndpp.laws.scoring import Best

    overall, everything = law.inclusion_probabilities(), np.ones(law.n_items, bool)
    found: dict[str, list[Any]] = {f"{gamma:g}": [None] * len(given) for gamma in gammas}
    for part in parts(law, given):
        scorer = Scorer(law, given[part])
        for gamma in gammas:
            unit = np.where(overall > 0, overall, 1.0) ** gamma
            best = np.argsort(-scorer.best(Best(LISTED, everything, unit, np.zeros(1))) / unit, axis=1, kind="stable")[
                :, :LISTED
            ]
            for i, items in zip(part.tolist(), best):
                found[f"{gamma:g}"][i] = items
    completions = recommend_many(law, given, n=LISTED, ranking=Ranking.COMPLETION)
    found["completion"] = [() if one is None else one.items for one in completions]
    return found


def judge(data: Data, baskets: Baskets, gammas: tuple[float, ...], most: int) -> list[dict[str, Any]]:
    """Return precision and share of bestsellers, with standard errors, for every number of given items and ranking."""
    counts = np.bincount(data.train.indices, minlength=data.train.n_items)
    bestsellers, records = np.argsort(-counts, kind="stable")[:BESTSELLERS], []
    for n_given in GIVEN:
        begun = begin(baskets, n_given, most)
        for ranking, found in lists(data.law, begun.given, gammas).items():
            hits = np.array([np.isin(items, list(rest)).sum() for items, rest in zip(found, begun.rest)]) / LISTED
            known = np.array([np.isin(items, bestsellers).sum() for items in found]) / LISTED
            record = {"data": data.name, "given": n_given, "ranking": ranking, "baskets": len(found)}
            for name, values in (("precision", hits), ("bestsellers", known)):
                record[name] = float(values.mean())
                record[f"{name}_error"] = float(values.std(ddof=1) / len(values) ** 0.5)
            records.append(record)
            print(record, flush=True)
    return records


def choose(records: list[dict[str, Any]]) -> float:
    """Return the largest γ that loses at most ``LOSS`` of the best mean precision on every data set."""
    able = set(GAMMAS)
    for name in {record["data"] for record in records}:
        means = {
            gamma: np.mean([r["precision"] for r in records if (r["data"], r["ranking"]) == (name, f"{gamma:g}")])
            for gamma in GAMMAS
        }
        able &= {gamma for gamma in GAMMAS if means[gamma] >= (1 - LOSS) * max(means.values())}
    return max(able, default=0.0)


def time_bulk(argument: str, n_baskets: int) -> list[dict[str, Any]]:
    """Return CPU seconds per basket of rankings of many baskets, one to five given items in equal parts."""
    data, records = read(argument), []
    lists = [list(b) for j in GIVEN for b in begin(data.test, j, n_baskets // len(GIVEN)).given]
    baskets = Baskets.from_lists(lists, n_items=data.law.n_items)
    for name, how in BULK.items():
        recommend_many(data.law, baskets[:2], **how)  # prepares the law
        start = time.process_time()
        recommend_many(data.law, baskets, **how)
        seconds = (time.process_time() - start) / len(baskets)
        records.append({"data": data.name, "ranking": name, "baskets": len(baskets), "cpu_seconds": seconds})
        print(records[-1], flush=True)
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", help="BASKETS.gz or BASKETS.gz=MODEL")
    parser.add_argument("--validation", type=int, default=150, help="validation baskets per number of given items")
    parser.add_argument("--test", type=int, default=300, help="test baskets per number of given items")
    parser.add_argument("--times", type=int, metavar="BASKETS", help="only measure the time of this many begun baskets")
    parser.add_argument("-o", "--output", type=Path)
    chosen = parser.parse_args()
    with threadpoolctl.threadpool_limits(1):
        if chosen.times:
            result: dict[str, Any] = {"times": [r for data in chosen.data for r in time_bulk(data, chosen.times)]}
        else:
            sets = [read(argument) for argument in chosen.data]
            validation = [r for data in sets for r in judge(data, data.validation, GAMMAS, chosen.validation)]
            gamma = choose(validation)
            rankings = tuple(sorted({0.0, gamma, 1.0}))
            test = [r for data in sets for r in judge(data, data.test, rankings, chosen.test)]
            result = {"gamma": gamma, "validation": validation, "test": test}
    if chosen.output:
        kept = json.loads(chosen.output.read_text(encoding="utf-8")) if chosen.output.exists() else {}
        text = json.dumps({**kept, "machine": machine(), **result}, indent=1)
        chosen.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
