"""Answers of a model as records: what to recommend and why, completions, likelihoods, related items, a description and a map.

Notebooks, the command and the service all ask here, so the same question has the same answer everywhere: the same items in the same order,
with the same numbers and words.
"""

from ndpp.answers.prepared import Prepared
from ndpp.answers.questions import (
    MOST_POPULAR,
    complete,
    describe,
    map_of,
    pairs,
    probability,
    recommend,
    recommend_many,
    related,
    search,
    why,
)
from ndpp.answers.records import Record

__all__ = [
    "MOST_POPULAR",
    "Prepared",
    "Record",
    "complete",
    "describe",
    "map_of",
    "pairs",
    "probability",
    "recommend",
    "recommend_many",
    "related",
    "search",
    "why",
]
