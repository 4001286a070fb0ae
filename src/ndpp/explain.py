"""The old name of parts of :mod:`ndpp.answers`, whose records name items by one field. It will be removed in version 0.3."""

from ndpp._lazy import renamed

_GONE = {
    "reasons": "ndpp.answers.recommend(…, why=True)",
    "reasons_many": "ndpp.answers.recommend_each(…, why=True)",
    "popularity": "ndpp.answers.describe(…).popular",
}
_NOW = {"related": "related", "missions": "missions", "strongest_pairs": "pairs", "atlas": "map_of"}

__getattr__ = renamed(__name__, _GONE, **{old: f"ndpp.answers.{new}" for old, new in _NOW.items()})
