"""A model in words: popular items, complements and substitutes, missions, and what a recommendation owes to each."""

from ndpp.explain._law import Share
from ndpp.explain.atlas import Atlas, atlas
from ndpp.explain.mission import Mission, Typical, missions
from ndpp.explain.pairs import Pair, Pairs, Related, popularity, related, strongest_pairs
from ndpp.explain.reason import Reason, Tie, reasons, reasons_many

__all__ = [
    "Atlas",
    "Mission",
    "Pair",
    "Pairs",
    "Reason",
    "Related",
    "Share",
    "Tie",
    "Typical",
    "atlas",
    "missions",
    "popularity",
    "reasons",
    "reasons_many",
    "related",
    "strongest_pairs",
]
