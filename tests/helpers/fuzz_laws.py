"""Random laws of every kind, badly scaled on purpose, against rational arithmetic; a part of :mod:`fuzz`."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
import pytest

import law_conditions
import law_verbs
from fuzz_files import Failure
from goodness import count_sets, goodness_of_fit
from law_conditions import CONTEXT, NAMES, Case, Person, base_entry, said_to_truth
from law_questions import QUESTIONS
from law_table import CHANGES, KINDS, Base, Entry, changed, fits
from ndpp import Limit
from ndpp.errors import NoConditionalKernelError, PrecisionError, PrecisionWarning, ZeroProbabilityError

VERBS = (
    *("log_prob", "log_prob_of_a_size", "log_probs", "log_normalizer", "log_mass", "size_distribution"),
    *("inclusion_probabilities", "inclusion_probabilities_of_a_size", "responsibilities", "component_log_probs"),
    *("component_inclusions", "mean_covariances", "condition", "restrict_and_exclude", "next_item_scores"),
    *("next_item_scores_many", "continuation_scores", "recommend_by_completion", "recommend_by_continuation"),
)
"""The verbs whose answers are numbers."""
LEAST_P = 1e-9
"""The p-value below which draws do not follow their law."""
RARE = 1e-8
"""What has a smaller probability may be refused as impossible, and its logarithm may be off by more."""


class Tally:
    """Laws of one scale, and those of them that were warned about or refused: the number, and the verb."""

    harmless = 0
    warned: ClassVar[list[tuple[int, str]]] = []
    asked: ClassVar[Counter[str]] = Counter()
    """How many questions were answered, and how many of them with a warning or an error."""
    p_values: ClassVar[list[float]] = []
    """Of draws."""


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
    return name if checked(f"{entry}: {name}", lambda: law_verbs.VERBS[name](entry)) else ""


def checked(what: str, check: Callable[[], None], tolerance: float = 1e-8) -> bool:
    """Return whether the answer was refused as imprecise, or came with a warning; fail if it was wrong without."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PrecisionWarning)
        try:
            with patch.multiple(law_verbs, LEAST=RARE, NEGLIGIBLE=RARE, TOLERANCE=tolerance):
                check()
        except PrecisionError:
            return True
        except (Exception, pytest.fail.Exception) as error:
            if any(issubclass(one.category, PrecisionWarning) for one in caught):
                return True
            raise Failure(f"{what}: {type(error).__name__}: {error}") from error
    return bool(caught)


def note(seed: int, spread: int, said: str) -> None:
    """Count a law of one scale, and whether anything was said about it."""
    if not spread:
        Tally.harmless += 1
        if said:
            Tally.warned.append((seed, said))


# ---- laws under conditions ------------------------------------------------------------------------------------------

PERHAPS = 1 / 2
NUMBERS = tuple(name for name in QUESTIONS if name not in ("sample", "best_set", "greedy_map"))
LISTS = tuple(name for name in NUMBERS if name.startswith("recommend"))
"""Whose truth takes small chances for none: they are asked of laws of one scale."""
N_DRAWN = 600
DEVICE: str | None = None
"""Where sets are drawn: ``python tests/helpers/fuzz.py draws --device cuda``."""


def random_limit(draw: random.Random, n: int) -> Limit:
    """A random lower bound, upper bound or both, on a number of items or on values with up to three decimals."""
    items = draw.sample(range(n), draw.randint(1, n))
    if draw.random() < PERHAPS:
        least, most = sorted(draw.randint(0, len(items)) for _ in range(2))
        return draw.choice([Limit(items, most=most), Limit(items, least=least), Limit(items, least, most)])
    values = {a: draw.randint(1, 400) / draw.choice([1, 10, 100, 1000]) for a in items}
    least, most = (round(sum(draw.sample(list(values.values()), draw.randint(0, len(items)))), 3) for _ in range(2))
    return Limit(
        values, **draw.choice([{"most": most}, {"least": least}, {"least": min(least, most), "most": max(least, most)}])
    )


def random_values(draw: random.Random, spread: int) -> dict[str, Callable[[int], Any]]:
    """For each condition, what may be said about a catalogue of n items."""

    def some(n: int, low: int, high: int) -> tuple[int, ...]:
        return tuple(draw.sample(range(n), min(n, draw.randint(low, high))))

    def factors(n: int) -> dict[int, float]:
        return {a: draw.choice([0.0, 0.5, 2.0, 3.0, 2.0 ** draw.randint(-spread, spread)]) for a in some(n, 1, n)}

    return {
        "given": lambda n: some(n, 1, 2),
        "size": lambda n: draw.randint(0, n),
        "exclude": lambda n: some(n, 1, 2),
        "candidates": lambda n: some(n, 1, n),
        "boost": factors,
        "limits": lambda n: tuple(random_limit(draw, n) for _ in range(draw.choice([1, 1, 2, 3]))),
        "context": lambda _: {name: draw.choice(words) for name, words in CONTEXT.items() if draw.random() < PERHAPS},
        "mission": lambda _: draw.choice(["one", "two", "three"]),
        "customer": lambda n: Person(
            draw.choice([None, (0.5, 4.0, 2.0)]), {a: s for a, s in factors(n).items() if s > 0}
        ),
        "nonempty": lambda _: True,
    }


def random_case(seed: int) -> tuple[Case, int, bool] | None:
    """Return a law under up to three conditions, its spread, and whether building it was warned about."""
    draw = random.Random(seed)
    spread = draw.choice([0, 0, 4, 9, 18, 27])
    kind, base = draw.choice(KINDS), random_base(draw, spread)
    truth, n = kind.truth(base), base.n_items
    names = draw.sample(NAMES, draw.choice([1, 1, 2, 2, 3]))
    if not kind.is_mixture:
        names = [name for name in names if name not in ("context", "mission")]
    values = random_values(draw, spread)
    said = {name: values[name](n) for name in names}
    if not np.isfinite(truth.p).all() or {*said.get("given", ())} & {*said.get("exclude", ())}:
        return None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PrecisionWarning)
        try:
            entry = base_entry(Entry(kind, base, (), kind.build(base), truth))
            if said.pop("nonempty", False):
                entry = entry._replace(
                    law=entry.law.without_empty(), truth=truth.without_empty(), change=(("without_empty", ()),)
                )
        except (PrecisionError, ZeroProbabilityError):
            return None
    with np.errstate(all="ignore"):
        found = said_to_truth(entry.truth, said)
        if (
            np.isnan(found.p).any()
            or not found.p.any()
            or not found.left
            or law_conditions.mass(entry.truth, said) < RARE
        ):
            return None
    return Case(entry, said, found), spread, bool(caught)


def condition_case(seed: int) -> None:
    """Ask a law under conditions every question that has a number for an answer: it is right to 1e-7, or says so."""
    made = random_case(seed)
    if made is None:
        return
    case, spread, said = made
    boosts = case.said.get("boost", {}).values()
    Tally.asked["laws"] += 1
    for name in NUMBERS:
        if QUESTIONS[name].suits(case) and not (name in LISTS and (spread or 0.0 in boosts)):
            Tally.asked["questions"] += 1
            answer = answered(seed, case, name)
            Tally.asked["warned or refused"] += answer
            said = said or answer
    note(seed, spread, "conditions" if said else "")


def answered(seed: int, case: Case, name: str) -> bool:
    """Return whether the answer to a question was refused, or came with a warning; fail if it was wrong without.

    A law warns once about what it keeps, when that is computed. An answer that is wrong without a word is asked of a new law.
    """
    try:
        return checked(f"{case}: {name}", lambda: QUESTIONS[name].check(case), 1e-7)
    except Failure:
        made = random_case(seed)
        assert made is not None
        return checked(f"{case}, made anew: {name}", lambda: QUESTIONS[name].check(made[0]), 1e-7)


def draw_case(seed: int) -> None:
    """Draw from a law under conditions; the p-values of all cases are uniform."""
    made = random_case(seed)
    if made is None:
        return
    case, _, _ = made
    try:
        drawn = count_sets(case.ask("sample", N_DRAWN, rng=seed, device=DEVICE))
    except PrecisionError:
        Tally.asked["draws refused"] += 1
        return
    p = dict(zip(case.truth.sets, case.truth.p.tolist(), strict=True))
    unheard = [S for S in drawn if p[S] <= 0]
    if unheard:
        raise Failure(f"{case}: {unheard} were drawn, which have probability zero")
    if case.truth.p.max() < 1 - 10 / N_DRAWN:
        p_value, _ = goodness_of_fit([drawn[S] for S in p], list(p.values()))
        Tally.p_values.append(p_value)
        if p_value < LEAST_P:
            raise Failure(f"{case}: draws have a p-value of {p_value:.1e}")
