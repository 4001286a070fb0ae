"""Likely sets without sampling: greedy MAP, next-item scores, recommendations."""

from ndpp.inference.greedy import greedy_map
from ndpp.inference.scores import Recommendation, next_item_scores, next_item_scores_many, recommend

__all__ = ["Recommendation", "greedy_map", "next_item_scores", "next_item_scores_many", "recommend"]
