"""JSON of dataclasses and NumPy values."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

import numpy as np

from ndpp.errors import OtherSettingsError


def plain(value: Any) -> Any:
    """Convert NumPy values and dataclasses to types that ``json`` knows: the argument ``default`` of ``json.dumps``.

    Examples
    --------
    >>> json.dumps({"a": np.arange(2), "b": np.float32(0.5)}, default=plain)
    '{"a": [0, 1], "b": 0.5}'
    """
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"{type(value).__name__} cannot be converted to JSON")


def to_json(value: Any) -> str:
    """Return strict JSON, with null for numbers that are not finite.

    Examples
    --------
    >>> to_json({"a": np.float64("nan"), "b": (np.int64(3), "ä")})
    '{"a": null, "b": [3, "ä"]}'
    """
    finite = json.loads(json.dumps(value, default=plain), parse_constant=lambda word: None)
    return json.dumps(finite, ensure_ascii=False, allow_nan=False)


def check_same(path: str | os.PathLike[str], then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise unless ``path`` was made with the same settings, ``then`` and ``now``: otherwise a resumed run would differ."""
    for name, value in json.loads(json.dumps(dict(now))).items():
        if then.get(name) != value:
            raise OtherSettingsError(os.fspath(path), name, then.get(name), value)
