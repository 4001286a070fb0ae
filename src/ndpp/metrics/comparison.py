"""A table of several models on the same baskets, with the same items held out.

Means are over the same baskets for all models: a basket that one model cannot have, or cannot rank, is left out for all of them,
and counted. Differences to the base model are taken basket by basket, so their intervals are much narrower than those of the means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ndpp._show import aligned, html_table, to_frame
from ndpp._types import RngLike
from ndpp._validation import check_count
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError
from ndpp.metrics.estimates import Bootstrap, Metric, PerBasket, Resampling, difference, mean_estimates
from ndpp.metrics.likelihood import auc
from ndpp.metrics.models import IndependentItems, has_probabilities, log_likelihoods, log_size_probabilities
from ndpp.metrics.ranking import HeldOut, Holdout, held_out_ranks, hold_out

PROBABILITY = ("log_likelihood", "gain", "size", "content", "auc")
RANKING = ("mean_percentile_rank", "hit_rate", "hit_rate_gain", "reciprocal_rank", "ndcg")
HEADS = {"log-likelihood gain": "gain"}
Means: TypeAlias = tuple[dict[str, dict[str, Metric]], int]
"""Estimates by model and field over the baskets that all models can have, and the number of other baskets."""


class ModelScores(NamedTuple):
    """The metrics of one model, None where a model has no probabilities or the base model has none.

    ``size`` and ``content`` are the two parts of the log-likelihood, log P(\\|S\\|) and log P(S) given the size. ``gain`` and
    ``hit_rate_gain`` are differences to the base model.
    """

    name: str
    log_likelihood: Metric | None = None
    gain: Metric | None = None
    size: Metric | None = None
    content: Metric | None = None
    auc: Metric | None = None
    mean_percentile_rank: Metric | None = None
    hit_rate: Metric | None = None
    hit_rate_gain: Metric | None = None
    reciprocal_rank: Metric | None = None
    ndcg: Metric | None = None

    @property
    def estimates(self) -> list[Metric]:
        """The metrics that the model has."""
        return [estimate for estimate in self[1:] if isinstance(estimate, Metric)]


class Comparison(NamedTuple):
    """One row per model. ``print`` shows two tables, of probabilities and of ranks.

    ``base`` is the name of the model that gains are relative to. Of ``n_baskets`` baskets, ``n_impossible`` have probability zero
    under at least one model and are left out of the means of probabilities (not of AUC) for all; of the ``n_held_out`` baskets of
    two items or more, ``n_unranked`` are likewise left out of the metrics of ranks.
    """

    rows: tuple[ModelScores, ...]
    base: str | None
    n_baskets: int
    n_impossible: int
    n_held_out: int
    n_unranked: int
    n_empty: int = 0
    """Of the impossible baskets, those without an item, because a model leaves out empty baskets."""

    def tables(self) -> list[tuple[list[str], list[list[str]]]]:
        """Return the header and the lines of each table; ± is half the width of an interval."""
        return [table for fields in (PROBABILITY, RANKING) if len((table := self._table(fields))[0]) > 1 and table[1]]

    def _table(self, fields: Sequence[str]) -> tuple[list[str], list[list[str]]]:
        cells = {name: [getattr(row, name) for row in self.rows] for name in fields}
        cells = {name: column for name, column in cells.items() if any(column)}
        heads = [next(HEADS.get(e.name, e.name) for e in column if e) for column in cells.values()]
        lines = [[row.name, *map(_cell, line)] for row, line in zip(self.rows, zip(*cells.values())) if any(line)]
        return ["model", *heads], lines

    def notes(self) -> list[str]:
        """Return what a reader of the tables should know, in sentences."""
        out = [f"{self.n_baskets:,} baskets, of which {self.n_held_out:,} have an item to hold out."]
        if self.base is not None:
            out.append(f"Gains are over {self.base}, basket by basket.")
        for number, field, what in (
            (self.n_impossible - self.n_empty, "log_likelihood", "have probability zero under a model and count for none, except in AUC"),
            (self.n_unranked, "mean_percentile_rank", "cannot be ranked by a model and count in the ranks of none"),
        ):  # fmt: skip
            if number:
                own = ((row.name, getattr(row, field)) for row in self.rows)
                which = ", ".join(f"{name}: {found.n_zero:,}" for name, found in own if found and found.n_zero)
                out.append(f"{number:,} baskets {what} ({which}).")
        if self.n_empty:
            why = "as orders whose items were all skipped are; a model here has no empty baskets"
            out.append(f"{self.n_empty:,} baskets are empty, {why}. They count for none, except in AUC.")
        return out

    def __repr__(self) -> str:
        blocks = []
        for head, lines in self.tables():
            blocks += [*aligned([head, *lines], [False, *[True] * (len(head) - 1)]), ""]
        return "\n".join([*blocks, *self.notes()])

    def _repr_html_(self) -> str:
        tables = [html_table("", head, lines) for head, lines in self.tables()]
        return "".join([*tables, *(f"<p>{escape(note)}</p>" for note in self.notes())])

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame of pandas, polars or pyarrow with a row per model and metric: its value and its interval."""
        found = [(row.name, one) for row in self.rows for one in row.estimates]
        numbers = {name: [getattr(one, name) for _, one in found] for name in ("value", "low", "high", "n")}
        return to_frame(
            {"model": [name for name, _ in found], "metric": [one.name for _, one in found], **numbers}, backend
        )


def compare_models(
    models: Mapping[str, object],
    baskets: Baskets,
    *,
    base: str | None = None,
    k: int = 10,
    holdout: Holdout = "random",
    level: float = 0.95,
    n_boot: int = 1000,
    rng: RngLike = None,
    by_size: bool = True,
) -> Comparison:
    """Compute all metrics of several models on the same baskets; the table shows half the interval width after ±.

    ``models`` maps names to models. Gains are relative to the model named ``base``, by default the first that is
    :func:`independent_items`, or else the first of all. ``by_size=False`` leaves out the parts of the likelihood that the size and the
    items have, which take minutes for a mixture of hundreds of components. The other parameters are those of :func:`hit_rate_at`.

    Examples
    --------
    >>> from ndpp.datasets import make_baskets
    >>> from ndpp.metrics import ease, independent_items
    >>> made = make_baskets(2000, rng=0)
    >>> train, _, test = made.baskets.split(0, 500, rng=0)
    >>> models = {"truth": made.kernel, "independent": independent_items(train), "EASE": ease(train)}
    >>> print(compare_models(models, test, rng=0))
    model        log-likelihood           gain     log P(size)  log P(items | size)            AUC
    truth           -12.5 ± 0.3  0.120 ± 0.047  -2.042 ± 0.064          -10.5 ± 0.3  0.760 ± 0.021
    independent     -12.6 ± 0.3              –  -2.042 ± 0.065          -10.6 ± 0.3  0.729 ± 0.022
    <BLANKLINE>
    model               MPR    hit rate@10  hit rate@10 gain            MRR        NDCG@10
    truth        66.2 ± 2.2  0.486 ± 0.044     0.037 ± 0.031  0.182 ± 0.022  0.230 ± 0.026
    independent  64.2 ± 2.5  0.449 ± 0.046                 –  0.163 ± 0.020  0.206 ± 0.024
    EASE         61.3 ± 2.6  0.395 ± 0.045    -0.054 ± 0.048  0.167 ± 0.021  0.195 ± 0.026
    <BLANKLINE>
    500 baskets, of which 463 have an item to hold out.
    Gains are over independent, basket by basket.
    """
    if not isinstance(models, Mapping):
        raise InvalidInputError(
            f"models must map names to models, as in {{'mine': model}}; got a {type(models).__name__}"
        )
    if base is None:
        base = next(
            (name for name, model in models.items() if isinstance(model, IndependentItems)), next(iter(models), None)
        )
    elif base not in models:
        raise InvalidInputError(f"base must be the name of a model, one of {', '.join(models)}; got {base!r}")
    k, rng = check_count(k, "k", least=1), np.random.default_rng(rng)
    held = hold_out(baskets, rng, holdout)
    seed = int(rng.integers(2**62))  # the same random sets and resamples for every model
    found, n_impossible = _probabilities(models, baskets, base, Bootstrap(level, n_boot, seed), by_size)
    ranks, n_unranked = _ranks(models, held, base, k, Bootstrap(level, n_boot, seed))
    settings: Resampling = {"level": level, "n_boot": n_boot, "rng": seed}
    areas = {name: auc(model, baskets, **settings) for name, model in models.items() if has_probabilities(model)}
    rows = tuple(ModelScores(name, **found.get(name, {}), auc=areas.get(name), **ranks[name]) for name in models)
    has_empty = not any(getattr(model, "nonempty", False) for model in models.values())
    n_empty = 0 if has_empty else int(np.sum(baskets.sizes == 0))
    return Comparison(rows, base, len(baskets), n_impossible, len(held.items), n_unranked, n_empty)


def _means(columns: dict[str, dict[str, PerBasket]], n_baskets: int, bootstrap: Bootstrap) -> Means:
    flat = [(name, field, column) for name, own in columns.items() for field, column in own.items()]
    possible = [column.values > -np.inf for _, _, column in flat]
    is_common = np.all([np.ones(n_baskets, bool), *possible], axis=0)
    out: dict[str, dict[str, Metric]] = {name: {} for name in columns}
    common = [column._replace(values=column.values[is_common]) for _, _, column in flat]
    for (name, field, _), estimate in zip(flat, mean_estimates(common, bootstrap)):
        out[name][field] = estimate
    return out, int(np.sum(~is_common))


def _probabilities(
    models: Mapping[str, object], baskets: Baskets, base: str | None, bootstrap: Bootstrap, by_size: bool
) -> Means:
    """Return log-likelihoods, their two parts, and their gain over the base model."""
    laws = {name: model for name, model in models.items() if has_probabilities(model)}
    likely = {name: log_likelihoods(model, baskets) for name, model in laws.items()}
    columns: dict[str, dict[str, PerBasket]] = {}
    for name, values in likely.items():
        n_zero = int(np.sum(values == -np.inf))
        columns[name] = {"log_likelihood": PerBasket("log-likelihood", values, n_zero)}
        if base in likely and base != name:
            columns[name]["gain"] = PerBasket("log-likelihood gain", difference(values, likely[base]), n_zero)
        size = log_size_probabilities(laws[name], baskets) if by_size else None
        if size is not None:
            columns[name]["size"] = PerBasket("log P(size)", size, n_zero)
            columns[name]["content"] = PerBasket("log P(items | size)", difference(values, size), n_zero)
    return _means(columns, len(baskets), bootstrap)


def _ranks(models: Mapping[str, object], held: HeldOut, base: str | None, k: int, bootstrap: Bootstrap) -> Means:
    """Return the metrics of the ranks of held-out items."""
    ranks = {name: held_out_ranks(model, held) for name, model in models.items()}
    columns: dict[str, dict[str, PerBasket]] = {}
    for name, own in ranks.items():
        n_zero = int(np.sum(~own.is_ranked))
        columns[name] = {
            "mean_percentile_rank": PerBasket("MPR", own.percentile(), n_zero),
            "hit_rate": PerBasket(f"hit rate@{k}", own.in_top(k), n_zero),
            "reciprocal_rank": PerBasket("MRR", own.reciprocal(), n_zero),
            "ndcg": PerBasket(f"NDCG@{k}", own.discounted(k), n_zero),
        }
        if base is not None and base != name:
            gain = difference(own.in_top(k), ranks[base].in_top(k))
            columns[name]["hit_rate_gain"] = PerBasket(f"hit rate@{k} gain", gain, n_zero)
    return _means(columns, len(held.items), bootstrap)


def _cell(estimate: Metric | None) -> str:
    if estimate is None:
        return "–"
    digits = 1 if abs(estimate.value) >= 10 else 3
    width = "" if np.isnan(estimate.low) else f" ± {(estimate.high - estimate.low) / 2:.{digits}f}"
    return f"{estimate.value:.{digits}f}{width}"
