"""What every law promises, verb by verb: each check compares one verb of the public face with the enumeration of an entry.

``VERBS`` is the whole table. A check takes an :class:`~law_table.Entry` and fails where the law and its truth differ by more than
``TOLERANCE``, so that ``entry._replace(law=another)`` is a negative control of it.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ndpp
import oracles
from law_table import Entry, Items, Truth, factors_of
from ndpp import Baskets
from ndpp.errors import (
    ImpossibleSizeError,
    InvalidInputError,
    NoConditionalKernelError,
    UnknownItemError,
    UnknownLabelError,
    ZeroProbabilityError,
)
from ndpp.inference.ranking import DAMPING, Ranking, recommend_many
from ndpp.inference.scores import continuation_scores, next_item_scores

TOLERANCE, LOG_TOLERANCE = 1e-9, 1e-8
"""Largest difference of a probability and of a score relative to the best of its basket; and of a log-probability."""
NEGLIGIBLE = 1e-13
"""Probabilities up to this may be taken for zero."""
LEAST = 0.0
"""Baskets and sizes of a probability up to this are not asked for."""
Check = Callable[[Entry], None]
VERBS: dict[str, Check] = {}


def verb(check: Check) -> Check:
    """Add a check to the table, under the name of its verb."""
    VERBS[check.__name__.removeprefix("check_")] = check
    return check


def applies(name: str, entry: Entry) -> bool:
    """Return whether laws of this kind have the verb."""
    if name in ("responsibilities", "component_log_probs", "component_inclusions", "only"):
        return entry.kind.is_mixture
    return name not in ("log_mass", "marginal_kernel") or not entry.kind.is_mixture


def close(found: Any, expected: Any, what: object, scale: float = 1.0) -> None:
    found, expected = np.asarray(found, float), np.asarray(expected, float)
    assert found.shape == expected.shape, f"{what}: shape {found.shape}, not {expected.shape}"
    with np.errstate(invalid="ignore"):
        off = np.where(found == expected, 0.0, np.abs(found - expected))
    worst = off.max(initial=0.0)
    assert worst <= TOLERANCE * scale, f"{what}: off by {worst:.2g}; {found} and not {expected}"


def close_logs(found: Any, probabilities: Any, what: object) -> None:
    """Compare as probabilities, and as logarithms where they are above ``NEGLIGIBLE``: smaller ones may be lost beside the others."""
    found, expected = np.atleast_1d(np.asarray(found, float)), np.atleast_1d(np.asarray(probabilities, float))
    assert not np.isnan(found).any(), f"{what}: {found}"
    both_small = np.maximum(np.exp(found), expected) <= NEGLIGIBLE
    close(np.exp(found), expected, what)
    with np.errstate(divide="ignore"):
        logs = np.log(expected)
    close(np.where(both_small, 0.0, found), np.where(both_small, 0.0, logs), what, LOG_TOLERANCE / TOLERANCE)


def some_sets(entry: Entry, *, most: int = 2) -> list[Items]:
    """A few small sets of items that the law does not leave out."""
    left = entry.truth.left
    return [S for k in range(most + 1) for S in list(combinations(left, k))[:: (1, 2, 6)[k]]]


def begun(entry: Entry) -> list[Items]:
    """Some baskets that a set may contain."""
    return [S for S in some_sets(entry) if entry.truth.mass(S) > LEAST]


def whole(entry: Entry) -> list[Items]:
    """Some baskets that are possible by themselves."""
    return [S for S in some_sets(entry) if entry.truth.p[oracles.mask_of(S)] > LEAST]


def sized(entry: Entry) -> list[tuple[Items, int]]:
    """A middle and the largest size of all sets, the least and the largest of those that contain a basket; none that are rare."""
    found: dict[tuple[Items, int], None] = {}
    for J in ((), begun(entry)[-1]):
        sizes = [k for k in range(len(J), entry.truth.n_items + 1) if entry.truth.mass(J, k) > LEAST]
        if sizes:
            found |= dict.fromkeys([(J, sizes[0] if J else sizes[len(sizes) // 2]), (J, sizes[-1])])
    return list(found)


def by_name(entry: Entry, values: Any) -> np.ndarray:
    """Values of the components of a mixture in the order of the truth; NaN of components that were dropped."""
    values = np.asarray(values, float)
    out = np.full((len(entry.truth.names), *values.shape[1:]), np.nan)
    for name, value in zip(entry.law.names, values, strict=True):
        out[entry.truth.names.index(name)] = value
    return out


def baskets_of(entry: Entry, sets: Iterable[Items]) -> Baskets:
    return Baskets.from_lists([list(S) for S in sets], n_items=entry.truth.n_items)


# ---- the catalogue --------------------------------------------------------------------------------------------------


@verb
def check_n_items(entry: Entry) -> None:
    assert entry.law.n_items == entry.truth.n_items


@verb
def check_labels(entry: Entry) -> None:
    assert list(entry.law.labels) == entry.base.labels
    assert entry.law.ids(entry.base.labels).tolist() == list(range(entry.truth.n_items))


@verb
def check_repr(entry: Entry) -> None:
    assert str(entry.truth.n_items) in repr(entry.law)
    assert ("ixture" in repr(entry.law)) == entry.kind.is_mixture
    assert f">{entry.truth.n_items}<" in entry.law._repr_html_()


@verb
def check_max_size(entry: Entry) -> None:
    largest = max(entry.truth.possible_sizes)
    assert largest <= entry.law.max_size <= len(entry.truth.left)
    if entry.kind.name in ("kernel", "symmetric kernel", "tied mixture", "families"):
        assert entry.law.max_size == largest


# ---- probabilities --------------------------------------------------------------------------------------------------


@verb
def check_log_prob(entry: Entry) -> None:
    truth = entry.truth
    for mask in range(0, len(truth.sets), 3):
        close_logs(entry.law.log_prob(truth.sets[mask][::-1]), truth.p[mask], truth.sets[mask])


@verb
def check_log_prob_of_a_size(entry: Entry) -> None:
    truth = entry.truth
    for size in truth.possible_sizes:
        total = truth.mass((), size)
        if total <= LEAST:
            continue
        for mask in np.flatnonzero(truth.sizes == size)[::4]:
            close_logs(entry.law.log_prob(truth.sets[mask], size), truth.p[mask] / total, (truth.sets[mask], size))
        assert entry.law.log_prob(range(truth.n_items if size < truth.n_items else 0), size) == -np.inf


@verb
def check_log_probs(entry: Entry) -> None:
    close_logs(entry.law.log_probs(baskets_of(entry, entry.truth.sets)), entry.truth.p, "log_probs")


@verb
def check_log_probs_of_a_size(entry: Entry) -> None:
    everything = baskets_of(entry, entry.truth.sets)
    for _, size in sized(entry):
        expected = np.where(entry.truth.sizes == size, entry.truth.p, 0.0) / entry.truth.mass((), size)
        close_logs(entry.law.log_probs(everything, size), expected, f"log_probs of size {size}")


@verb
def check_pair_probabilities(entry: Entry) -> None:
    law, truth, items = entry.law, entry.truth, range(entry.truth.n_items)
    expected = np.array([[truth.mass({a, b}) for b in items] for a in items])
    close(law.pair_probabilities(items), expected, "pair_probabilities")
    pairs = [(a, b) for a in items for b in items][::3]
    close(law.pair_probabilities(pairs), [expected[pair] for pair in pairs], "pair_probabilities of pairs")
    by_label = [[entry.base.labels[a], entry.base.labels[b]] for a, b in pairs]
    close(law.pair_probabilities(by_label), [expected[pair] for pair in pairs], "pair_probabilities by label")


@verb
def check_marginal_kernel(entry: Entry) -> None:
    """Its minors are the probabilities of containing these items, excluded ones included."""
    items, kept = tuple(range(entry.truth.n_items))[::-1], float(entry.law.kept[0])
    K = entry.law.marginal_kernel(items)
    for A in combinations(range(len(items)), 3):
        close(np.linalg.det(K[np.ix_(A, A)]) / kept, entry.truth.mass([items[a] for a in A]), f"minor of {A}")
    for a, b in combinations(range(len(items)), 2):
        close(
            (K[a, a] * K[b, b] - K[a, b] * K[b, a]) / kept, entry.truth.mass([items[a], items[b]]), f"minor of {a}, {b}"
        )


def entropy_of(p: np.ndarray) -> float:
    return -float(p[p > 0] @ np.log(p[p > 0]))


@verb
def check_entropy_and_kl(entry: Entry) -> None:
    law, truth, (_, size) = entry.law, entry.truth, sized(entry)[0]
    close(law.entropy().value, entropy_of(truth.p), "entropy", 10)
    sized_p = np.where(truth.sizes == size, truth.p, 0.0) / truth.mass((), size)
    close(law.entropy(size=size).value, entropy_of(sized_p), f"entropy of size {size}", 10)
    factors = {truth.left[0]: 3.0}
    for of, p in ((None, truth.p), (size, sized_p)):
        other = truth.tilt(factors).p
        other = other if of is None else np.where(truth.sizes == of, other, 0.0) / truth.tilt(factors).mass((), of)
        expected = float(p[p > 0] @ np.log(p[p > 0] / other[p > 0]))
        close(law.kl(law.tilt(factors), size=of).value, expected, f"divergence of size {of}", 10)


@verb
def check_log_normalizer(entry: Entry) -> None:
    whole = entry.law.log_normalizer()
    assert whole == 0.0 or not entry.kind.is_mixture
    for size in range(entry.truth.n_items + 2):
        close_logs(entry.law.log_normalizer(size) - whole, entry.truth.mass((), size), f"size {size}")


@verb
def check_log_mass(entry: Entry) -> None:
    whole = entry.law.log_normalizer()
    for i, J in enumerate(some_sets(entry)):
        close_logs(entry.law.log_mass(J) - whole, entry.truth.mass(J), J)
        for size in range(i % 4, entry.truth.n_items + 2, 4):  # a few sizes of each set, each size of a few sets
            close_logs(entry.law.log_mass(J, size) - whole, entry.truth.mass(J, size), (J, size))


@verb
def check_size_distribution(entry: Entry) -> None:
    found, expected = entry.law.size_distribution(), entry.truth.size_distribution()
    assert len(found) == entry.law.max_size + 1
    close(np.pad(found, (0, max(0, len(expected) - len(found)))), expected, "size_distribution")


@verb
def check_check_size(entry: Entry) -> None:
    possible = entry.truth.possible_sizes
    for size in possible:
        assert entry.law.check_size(size) == size
    for size in {min(set(range(entry.truth.n_items + 2)) - set(possible)), entry.truth.n_items + 1}:
        with pytest.raises(ImpossibleSizeError):
            entry.law.check_size(size)


def are_certain(found: Any, given: Items, out: Iterable[int]) -> None:
    """Given items have probability one, and those that are left out zero, to the last digit."""
    assert (found[list(given)] == 1.0).all(), f"given {given}: {found}"
    assert (found[list(out)] == 0.0).all(), f"without {out}: {found}"


@verb
def check_inclusion_probabilities(entry: Entry) -> None:
    truth = entry.truth
    out = set(range(truth.n_items)) - {*truth.left}
    close(entry.law.inclusion_probabilities(), truth.inclusions(), "inclusion_probabilities")
    for J in begun(entry):
        found = entry.law.inclusion_probabilities(given=J)
        close(found, truth.inclusions(None, J), f"given {J}")
        are_certain(found, J, out)
        gone = [a for a in truth.left if len(truth.left) > 1 and a not in J and truth.exclude((a,)).mass(J) > LEAST][:1]
        are_certain(entry.law.inclusion_probabilities(given=J, exclude=gone), J, out | {*gone})


@verb
def check_inclusion_probabilities_of_a_size(entry: Entry) -> None:
    for J, size in sized(entry):
        found = entry.law.inclusion_probabilities(size, J)
        close(found, entry.truth.inclusions(size, J), f"size {size}, given {J}")
        are_certain(found, J, set(range(entry.truth.n_items)) - {*entry.truth.left})


# ---- components -----------------------------------------------------------------------------------------------------


@verb
def check_log_containment(entry: Entry) -> None:
    found = [entry.law.log_containment(J) for J in begun(entry)]
    close_logs(found, [entry.truth.mass(J) for J in begun(entry)], "log_containment")


@verb
def check_responsibilities(entry: Entry) -> None:
    law, truth = entry.law, entry.truth
    for J in begun(entry):
        expected = truth.posterior(truth.containing(J))
        close(np.nan_to_num(by_name(entry, law.responsibilities(J))), expected, f"responsibilities of {J}")
    for S in whole(entry)[::2]:
        expected = truth.posterior(truth.containing(S, len(S)))
        close(np.nan_to_num(by_name(entry, law.responsibilities(S, whole=True))), expected, f"of the whole {S}")
    for J, size in sized(entry):
        found = by_name(entry, law.responsibilities(J, size=size))
        close(np.nan_to_num(found), truth.posterior(truth.containing(J, size)), f"of {J}, size {size}")


@verb
def check_component_log_probs(entry: Entry) -> None:
    found = by_name(entry, entry.law.component_log_probs(baskets_of(entry, entry.truth.sets)).T)
    for name, row, expected in zip(entry.truth.names, found, entry.truth.given_component):
        assert not np.isnan(row).any() or entry.truth.weights[entry.truth.names.index(name)] <= LEAST, name
        if not np.isnan(row).any() and not np.isnan(expected).any():
            close_logs(row, expected, name)


@verb
def check_component_inclusions(entry: Entry) -> None:
    truth, found = entry.truth, by_name(entry, entry.law.component_inclusions())
    for c, row in enumerate(found):
        table = truth.given_component[c]
        if not np.isnan(row).any() and not np.isnan(table).any():
            close(row, [table[truth.containing([a])].sum() for a in range(truth.n_items)], truth.names[c])


@verb
def check_mean_covariances(entry: Entry) -> None:
    """Σ_c w_c Cov_c(a ∈ S, b ∈ S): what complements and substitutes are ranked by; before the empty set is left out, over P_c(S ≠ ∅)."""
    truth, expected = entry.truth, 0.0
    items = [a for a in truth.left if truth.mass([a]) > 0]
    kept = np.broadcast_to(1 / (1 + np.asarray(truth.empty)), truth.weights.shape)
    for weight, table, share in zip(truth.weights, truth.given_component, kept):
        if weight > 0:
            both = np.array([[table[truth.containing({a, b})].sum() for b in items] for a in items])
            expected = expected + weight * (both - share * np.outer(np.diag(both), np.diag(both)))
    if len(items) > 1:
        apart = ~np.eye(len(items), dtype=bool)
        found = entry.law.mean_covariances(np.array(items), np.array(items[::-1]))[:, ::-1]
        close(found[apart], np.asarray(expected)[apart], "mean_covariances")
        (row,) = entry.law.mean_covariances(np.array(items[:1]), np.array(items[1:]))  # one item is a case of its own
        close(row, np.asarray(expected)[0, 1:], "mean_covariances of one item")


@verb
def check_only(entry: Entry) -> None:
    truth = entry.truth
    for c, name in enumerate(truth.names):
        if truth.weights[c] > 0:
            found = entry.law.only([entry.law.component(name)])
            close_logs(found.log_probs(baskets_of(entry, truth.sets)), truth.given_component[c], f"only {name}")


# ---- laws again -----------------------------------------------------------------------------------------------------


@verb
def check_condition(entry: Entry) -> None:
    for J in begun(entry)[1::2]:
        if entry.truth.has_kernel_given(J) and len(J) < len(entry.truth.left):
            expected = entry.truth.condition(J).p
            close_logs(entry.law.condition(J).log_probs(baskets_of(entry, entry.truth.sets)), expected, f"given {J}")


def check_changed(entry: Entry, verb: str, what: Any, truth: Truth) -> None:
    """Compare a changed law with its truth; where only the empty set would be left, and is left out, there is none."""
    if np.any(entry.truth.empty) and not truth.p.any():
        with pytest.raises(ZeroProbabilityError):
            getattr(entry.law, verb)(what)
    else:
        found = getattr(entry.law, verb)(what).log_probs(baskets_of(entry, truth.sets))
        close_logs(found, truth.p, f"{verb} {what}")


@verb
def check_restrict_and_exclude(entry: Entry) -> None:
    left = entry.truth.left
    for J in [left[:1], left[1:4:2]]:
        if len(J) < len(left) and J:
            check_changed(entry, "exclude", J, entry.truth.exclude(J))
        if J:
            check_changed(entry, "restrict", J, entry.truth.restrict(J))


@verb
def check_tilt(entry: Entry) -> None:
    n, left = entry.truth.n_items, entry.truth.left
    for J in {left[:1], left[-2:], left[1:4]}:
        factors = factors_of(J)
        if all(factors.get(a) == 0 for a in left):
            continue
        by_label = {entry.base.labels[a]: s for a, s in factors.items()}
        given = (by_label, factors, [factors.get(a, 1.0) for a in range(n)])[len(J) % 3]
        check_changed(entry, "tilt", given, entry.truth.tilt(factors))
    assert entry.law.tilt(np.ones(n)) is entry.law
    for wrong in ({0: -1.0}, {0: np.nan}, {entry.base.labels[0]: np.inf}):
        with pytest.raises(InvalidInputError, match="item 0 of"):
            entry.law.tilt(wrong)
    for wrong, error in (
        ({n: 1.0}, UnknownItemError),
        ({"nobody": 1.0}, UnknownLabelError),
        (np.ones(n + 1), InvalidInputError),
    ):
        with pytest.raises(error):
            entry.law.tilt(wrong)


@verb
def check_save_and_load(entry: Entry) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ndpp.save(entry.law, Path(folder) / "law.safetensors")
        again = entry._replace(law=ndpp.load(Path(folder) / "law.safetensors"))
    check_log_probs(again)
    check_labels(again)
    check_size_distribution(again)


@verb
def check_pickle(entry: Entry) -> None:
    again = entry._replace(law=pickle.loads(pickle.dumps(entry.law)))
    check_log_probs(again)
    check_labels(again)
    close(again.law.inclusion_probabilities(), entry.truth.inclusions(), "inclusion_probabilities")


# ---- scores ---------------------------------------------------------------------------------------------------------


def close_scores(found: Any, expected: np.ndarray, what: object) -> None:
    close(found, expected, what, max(1.0, float(expected.max(initial=0.0))))


@verb
def check_next_item_scores(entry: Entry) -> None:
    for J in whole(entry):
        close_scores(ndpp.next_item_scores(entry.law, J), entry.truth.next_scores(J), J)


@verb
def check_next_item_scores_many(entry: Entry) -> None:
    sets = whole(entry)
    for J, found in zip(sets, next_item_scores(entry.law, baskets_of(entry, sets)), strict=True):
        close_scores(found, entry.truth.next_scores(J), J)


def continuation(entry: Entry, J: Items) -> np.ndarray:
    out = entry.truth.inclusions(None, J)
    out[list(J)] = 0.0
    return out


@verb
def check_continuation_scores(entry: Entry) -> None:
    sets = begun(entry)
    for J, found in zip(sets, continuation_scores(entry.law, baskets_of(entry, sets)), strict=True):
        close(found, continuation(entry, J), J)
    close(continuation_scores(entry.law, sets[-1]), continuation(entry, sets[-1]), sets[-1])


def ranked(entry: Entry, ranking: Ranking, J: Items) -> np.ndarray:
    """The true scores of a ranking."""
    if ranking is Ranking.COMPLETION:
        return entry.truth.next_scores(J)
    unit = entry.truth.inclusions() if ranking is Ranking.LIFT else np.ones(entry.truth.n_items)
    return continuation(entry, J) / np.where(unit > 0, unit, 1.0)


def check_ranking(entry: Entry, ranking: Ranking) -> None:
    sets = (whole if ranking is Ranking.COMPLETION else begun)(entry)[::3]
    options = {"support": 0.0} if ranking is Ranking.LIFT else {}
    popularity = entry.truth.inclusions()
    damped = np.where(popularity > 0, popularity, 1.0) ** (DAMPING if ranking is Ranking.CONTINUATION else 0.0)
    in_bulk = recommend_many(entry.law, baskets_of(entry, sets), n=3, ranking=ranking, **options)
    for J, many in zip(sets, in_bulk, strict=True):
        scores = ranked(entry, ranking, J)
        for found in (many, entry.law.recommend(J, n=3, ranking=ranking, **options)):
            close_scores(found.scores, scores[found.items], (J, "scores of", found.items))
            best = np.sort(scores / damped)[::-1][: len(found.items)]
            close_scores(found.scores / damped[found.items], best, (J, "the best"))
            least, most = (min(3, np.count_nonzero(scores > limit)) for limit in (1e-12, 0.0))
            assert least <= len(found.items) <= (most if LEAST else least), (J, found.items)
            assert list(found.labels) == [entry.base.labels[a] for a in found.items]


@verb
def check_recommend_by_completion(entry: Entry) -> None:
    check_ranking(entry, Ranking.COMPLETION)


@verb
def check_recommend_by_continuation(entry: Entry) -> None:
    check_ranking(entry, Ranking.CONTINUATION)


@verb
def check_recommend_by_lift(entry: Entry) -> None:
    check_ranking(entry, Ranking.LIFT)


@verb
def check_greedy_map(entry: Entry) -> None:
    """The first item that is added has the best score; where none has any, no set has one item more, or a pair is added."""
    for J in whole(entry)[::3]:
        scores = entry.truth.next_scores(J)
        if scores.max() > 1e-9:
            found = ndpp.greedy_map(entry.law, len(J) + 1, given=J)
            assert tuple(found[:-1].tolist()) == J
            assert scores[found[-1]] >= scores.max() * (1 - 1e-9), f"{found} with scores {scores}"
        else:
            with pytest.raises(ImpossibleSizeError):
                ndpp.greedy_map(entry.law, len(J) + 1, given=J)


# ---- labels and errors ----------------------------------------------------------------------------------------------


@verb
def check_labels_instead_of_ids(entry: Entry) -> None:
    labels, left = entry.base.labels, entry.truth.left
    S = left[:2]
    close_logs(entry.law.log_prob([labels[a] for a in S]), entry.truth.p[oracles.mask_of(S)], S)
    for J in begun(entry)[1:2]:
        found = entry.law.inclusion_probabilities(given=[labels[a] for a in J])
        close(found, entry.truth.inclusions(None, J), J)
        with pytest.raises(UnknownLabelError):
            entry.law.inclusion_probabilities(given=[labels[J[0]], "no such label"])


@verb
def check_errors_of_items(entry: Entry) -> None:
    """Items that never come together, or are not in the catalogue, are refused by every verb that takes them."""
    law, truth = entry.law, entry.truth
    asks: list[Callable[[Any], Any]] = [
        lambda J: law.inclusion_probabilities(given=J), law.condition, lambda J: law.sample(1, given=J, rng=0),
        lambda J: ndpp.next_item_scores(law, J), lambda J: continuation_scores(law, J),
    ]  # fmt: skip
    asks += [law.responsibilities] if entry.kind.is_mixture else []
    never = [J for J in oracles.subsets(truth.n_items) if 0 < len(J) <= 2 and truth.mass(J) == 0]
    for J in {*never[:1], *never[-1:]}:
        for ask in asks:
            with pytest.raises(ZeroProbabilityError):
                ask(J)
        assert law.log_prob(J) == -np.inf
    for ask in [*asks, law.log_prob, law.restrict, law.exclude]:
        with pytest.raises(UnknownItemError):
            ask([0, truth.n_items])
        with pytest.raises(InvalidInputError):
            ask([0, 0])


@verb
def check_errors_of_baskets_that_are_never_whole(entry: Entry) -> None:
    law, truth = entry.law, entry.truth
    # The empty set that is left out is scored as if it were not.
    for J in [J for J in some_sets(entry) if truth.p[oracles.mask_of(J)] == 0 and (J or not np.any(truth.empty))][:3]:
        with pytest.raises(ZeroProbabilityError):
            ndpp.next_item_scores(law, J)
        with pytest.raises(ZeroProbabilityError):
            next_item_scores(law, baskets_of(entry, [J]))
        assert recommend_many(law, baskets_of(entry, [J]), ranking=Ranking.COMPLETION) == [None]
    if entry.kind.may_lack_conditionals:
        for J in [J for J in begun(entry) if J and not truth.has_kernel_given(J)][:3]:
            with pytest.raises(NoConditionalKernelError):
                law.condition(J)


@verb
def check_errors_of_sizes(entry: Entry) -> None:
    law, truth = entry.law, entry.truth
    size = min(
        {1, 3, truth.n_items, truth.n_items + 1} - set(truth.possible_sizes)
    )  # ``check_size`` is asked for all of them
    for ask in (law.inclusion_probabilities, lambda k: law.log_prob([], k), lambda k: law.sample(size=k)):
        with pytest.raises(ImpossibleSizeError):
            ask(size)
    for J in begun(entry)[-1:]:
        for size in [0, 1, len(J) + 1, truth.n_items + 1]:
            if truth.mass(J, size) == 0:
                with pytest.raises(ImpossibleSizeError):
                    law.inclusion_probabilities(size, J)
                with pytest.raises(ImpossibleSizeError):
                    law.sample(size=size, given=J)
                if entry.kind.is_mixture:
                    with pytest.raises(ImpossibleSizeError):
                        law.responsibilities(J, size=size)
    for ask in (law.check_size, law.inclusion_probabilities, lambda k: law.log_prob([], k), law.log_normalizer):
        with pytest.raises(InvalidInputError):
            ask(-1)


@verb
def check_errors_where_no_item_is_left(entry: Entry) -> None:
    """Laws refuse it, but for families, which answer with the law of the empty set."""
    law, left = entry.law, entry.truth.left
    asks = [lambda: law.exclude(left), lambda: law.restrict([])]
    if entry.kind.name == "families" and not np.any(entry.truth.empty):
        for ask in asks:
            close_logs(
                ask().log_probs(baskets_of(entry, entry.truth.sets)), entry.truth.exclude(left).p, "nothing left"
            )
        return
    asks += [] if entry.kind.name == "families" else [lambda: law.condition(left)]
    for ask in asks:
        with pytest.raises((InvalidInputError, ZeroProbabilityError)):
            ask()
