"""Likely sets without sampling: greedy MAP, scores of items, recommendations."""

from ndpp.inference.best import BestSet, best_set
from ndpp.inference.diversify import Diversified, diversify
from ndpp.inference.greedy import greedy_map
from ndpp.inference.ranking import Ranking, recommend, recommend_many
from ndpp.inference.recommendation import PerCategory, Recommendation, Recommendations
from ndpp.inference.scores import (
    continuation_scores,
    next_item_scores,
)

__all__ = [
    "BestSet",
    "Diversified",
    "PerCategory",
    "Ranking",
    "Recommendation",
    "Recommendations",
    "best_set",
    "continuation_scores",
    "diversify",
    "greedy_map",
    "next_item_scores",
    "recommend",
    "recommend_many",
]
