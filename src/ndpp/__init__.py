"""Learning, exact and MCMC sampling, and inference for low-rank nonsymmetric determinantal point processes."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ndpp import rows
from ndpp.baskets import Baskets
from ndpp.inference import (
    PerCategory,
    Ranking,
    best_set,
    continuation_scores,
    diversify,
    greedy_map,
    next_item_scores,
    recommend,
    recommend_many,
)
from ndpp.laws import FamilyMixture, Law, Limit, LowRankKernel, Mixture, load, load_metadata, save
from ndpp.laws.similar import similar_items, text_features

if TYPE_CHECKING:
    from ndpp import answers, datasets, diagnostics, metrics, plots, samplers, select, torch
    from ndpp.customers import Customers
    from ndpp.learning import NDPP, ONDPP, MixtureNDPP, SymmetricDPP, fit, update

__version__ = "0.3.0"

__all__ = [
    "NDPP",
    "ONDPP",
    "Baskets",
    "Customers",
    "FamilyMixture",
    "Limit",
    "LowRankKernel",
    "Mixture",
    "MixtureNDPP",
    "PerCategory",
    "Ranking",
    "SymmetricDPP",
    "answers",
    "best_set",
    "continuation_scores",
    "datasets",
    "diagnostics",
    "diversify",
    "fit",
    "greedy_map",
    "load",
    "load_metadata",
    "metrics",
    "next_item_scores",
    "plots",
    "recommend",
    "recommend_many",
    "rows",
    "samplers",
    "save",
    "select",
    "similar_items",
    "text_features",
    "torch",
    "update",
]

_PACKAGES = ("answers", "datasets", "diagnostics", "metrics", "plots", "samplers", "select", "torch")
_LEARNING = ("NDPP", "ONDPP", "MixtureNDPP", "SymmetricDPP", "fit", "update")


def _prepare_sampler(law: Law, **options: Any) -> Any:
    """Prepare the exact sampler of a distribution; samplers are imported on first use, since Numba takes its time."""
    from ndpp.samplers.laws import prepare

    return prepare(law, **options)


Law._prepare_sampler, Law.recommend = _prepare_sampler, recommend


def __getattr__(name: str) -> Any:
    """Import heavier packages on first use, so that ``import ndpp`` stays fast."""
    if name in _PACKAGES:
        return import_module(f"ndpp.{name}")
    if name in _LEARNING:
        return getattr(import_module("ndpp.learning"), name)
    if name == "Customers":
        return import_module("ndpp.customers").Customers
    raise AttributeError(f"module 'ndpp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
