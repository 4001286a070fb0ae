"""Random laws of every kind, badly scaled on purpose, against rational arithmetic; a part of :mod:`fuzz`."""

from __future__ import annotations

import random
import warnings
from typing import ClassVar
from unittest.mock import patch

import numpy as np

import law_verbs
from fuzz_files import Failure
from law_table import CHANGES, KINDS, Base, Entry, changed, fits
from ndpp.errors import NoConditionalKernelError, PrecisionError, PrecisionWarning, ZeroProbabilityError

VERBS = (
    *("log_prob", "log_prob_of_a_size", "log_probs", "log_normalizer", "log_mass", "size_distribution"),
    *("inclusion_probabilities", "inclusion_probabilities_of_a_size", "responsibilities", "component_log_probs"),
    *("component_inclusions", "mean_covariances", "condition", "restrict_and_exclude", "next_item_scores"),
    *("next_item_scores_many", "continuation_scores", "recommend_by_completion", "recommend_by_continuation"),
)
"""The verbs whose answers are numbers."""
RARE = 1e-8
"""What has a smaller probability may be refused as impossible, and its logarithm may be off by more."""


class Tally:
    """Laws of one scale, and those of them that were warned about or refused: the number, and the verb."""

    harmless = 0
    warned: ClassVar[list[tuple[int, str]]] = []


def random_base(draw: random.Random, spread: int) -> Base:
    """Arguments of a law of a few items, exact in double precision, over ±``spread`` powers of two."""
    n, d = draw.randint(2, 5), draw.randint(1, 4)

    def whole(*shape: int, low: int = -9, high: int = 9) -> np.ndarray:
        values = [draw.randint(low, high) for _ in range(int(np.prod(shape)))]
        return np.array(values, float).reshape(shape)

    def powers(*shape: int) -> np.ndarray:
        return 2.0 ** whole(*shape, low=-spread, high=spread)

    G, S = whole(d, draw.randint(1, d), low=-3, high=3), whole(d, d, low=-5, high=5)
    tiny = 2.0 ** -draw.choice([10, 30]) if spread else 1.0
    symmetric, skew = draw.choice([(1, 1), (1, 0), (0, 1), (1, tiny), (tiny, 1)]) if spread else (1, 1)
    X, W = whole(n, d) / 8, symmetric * (G @ G.T) / 4 + skew * (S - S.T) / 4
    scaled = draw.choice(["columns", "items", "odds", "columns and odds", "inner"]) if spread else ""
    if "columns" in scaled:
        X = X * powers(d)
    if "items" in scaled:
        X = X * powers(n, 1)
    if "inner" in scaled:
        scale = powers(d)
        W = scale[:, None] * W * scale
    unit = powers(n) if "odds" in scaled else np.ones(n)
    states = powers(5) if "odds" in scaled else np.ones(5)
    some = 0 if spread else 1
    return Base(
        f"random, 2^±{spread} by {scaled}",
        X,
        W,
        background=whole(n, low=some, high=9) / 8 * unit,
        odds=whole(3, n, low=some, high=9) / 8 * unit,
        weights=np.array([0.5, 0.125, 0.375]),
        item_odds=whole(n, 2, low=some, high=9) / 4,
        state_odds=whole(3, 5, low=1, high=9) / 8 * states,
    )


def law_case(seed: int) -> None:
    """Ask one law every question: each answer is right to 1e-8, or comes with a warning, or is refused as imprecise."""
    draw = random.Random(seed)
    spread = draw.choice([0, 0, 4, 9, 18, 27])
    kind, base = draw.choice(KINDS), random_base(draw, spread)
    truth = kind.truth(base)
    if not np.isfinite(truth.p).all():  # a component, or the law, of weight zero
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PrecisionWarning)
        try:
            entry: Entry | None = Entry(kind, base, (), kind.build(base), truth)
            change = draw.choice(CHANGES)
            if draw.random() < 1 / 2 and entry is not None and fits(change, base.n_items):
                entry = changed(entry, change) or entry
        except (PrecisionError, NoConditionalKernelError, ZeroProbabilityError):
            entry = None
    if entry is None or caught:
        note(seed, spread, "construction" if entry is None or caught else "")
        return
    said = ""
    for name in VERBS:
        if law_verbs.applies(name, entry):
            said = said or ask(entry, name)
    note(seed, spread, said)


def ask(entry: Entry, name: str) -> str:
    """Ask one question; return its name if the answer came with a warning, or was refused."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PrecisionWarning)
        try:
            with patch.multiple(law_verbs, LEAST=RARE, NEGLIGIBLE=RARE, TOLERANCE=1e-8):
                law_verbs.VERBS[name](entry)
        except PrecisionError:
            return name
        except Exception as error:
            if any(issubclass(one.category, PrecisionWarning) for one in caught):
                return name
            raise Failure(f"{entry}: {name}: {type(error).__name__}: {error}") from error
    return name if caught else ""


def note(seed: int, spread: int, said: str) -> None:
    """Count a law of one scale, and whether anything was said about it."""
    if not spread:
        Tally.harmless += 1
        if said:
            Tally.warned.append((seed, said))
