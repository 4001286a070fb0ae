"""Other rules for diverse lists, to compare with: maximal marginal relevance and max-sum diversification."""

from __future__ import annotations

import numpy as np

from ndpp._types import FloatArray, IntArray


def rival_list(
    x: FloatArray, scores: FloatArray, k: int, given: IntArray, diversity: float, method: str
) -> tuple[IntArray, FloatArray]:
    """Return ``k`` items after the given ones, and the value of each when it was chosen; x has rows of norm one. O(n d k).

    With Y the items so far and m the number of all in the end, the value of item i is

        "mmr":      (1 − diversity) s_i − diversity max_{j∈Y} ⟨x_i, x_j⟩,              [Carbonell and Goldstein, SIGIR 1998]
        "max-sum":  (1 − diversity) s_i + 2 diversity / (m − 1) Σ_{j∈Y} ‖x_i − x_j‖.   [Gollapudi and Sharma, WWW 2009]
    """
    n, pairs = len(x), max(len(given) + k - 1, 1)
    alike, apart, values = np.full(n, -np.inf), np.zeros(n), np.empty(0)
    items, found, is_open = list(given), list[float](), np.ones(n, bool)
    for step in range(len(given) + k):
        if step >= len(given):
            other = -np.where(alike > -np.inf, alike, 0.0) if method == "mmr" else 2 / pairs * apart
            values = np.where(is_open, (1 - diversity) * scores + diversity * other, -np.inf)
            items.append(int(values.argmax()))
            found.append(float(values[items[-1]]))
        is_open[items[step]] = False
        cosines = x @ x[items[step]]
        alike = np.maximum(alike, cosines)
        apart += np.sqrt(np.maximum(2 - 2 * cosines, 0.0))
    return np.array(items[len(given) :], np.int64), np.array(found)
