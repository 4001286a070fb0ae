"""Answers of a model as records: what to recommend and why, completions, likelihoods, related items, a description and a map.

Notebooks, the command and the service all ask here, so the same question has the same answer everywhere: the same items in the same order,
with the same numbers and words.
"""

from ndpp.answers.changes import changes
from ndpp.answers.prepared import Prepared
from ndpp.answers.questions import (
    complete,
    describe,
    map_of,
    missions,
    probability,
    recommend,
    recommend_each,
    search,
    sizes,
    why,
)
from ndpp.answers.records import Record
from ndpp.answers.relations import MOST_POPULAR, pairs, related
from ndpp.answers.table import ItemTable

__all__ = [
    "MOST_POPULAR",
    "ItemTable",
    "Prepared",
    "Record",
    "changes",
    "complete",
    "describe",
    "map_of",
    "missions",
    "pairs",
    "probability",
    "recommend",
    "recommend_each",
    "related",
    "search",
    "sizes",
    "why",
]
