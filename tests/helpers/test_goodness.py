"""The judges are judged: right laws pass, slightly wrong ones do not, and the false-alarm rate is the stated one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest
from scipy.linalg import block_diag

import goodness
import oracles
from kernels import AWKWARD, BY_NAME, Case, random_ndpp, skew

DRAWS = 50_000


def draw(law: oracles.Law, n: int, rng: np.random.Generator) -> Counter:
    keys = list(law)
    return Counter(dict(zip(keys, rng.multinomial(n, np.array(list(law.values()))).tolist())))


def disturbed(law: oracles.Law, relative: float, rng: np.random.Generator) -> oracles.Law:
    """Every probability off by ± ``relative``."""
    weights = {key: p * (1 + relative * rng.choice([-1, 1])) for key, p in law.items()}
    total = sum(weights.values())
    return {key: p / total for key, p in weights.items()}


@pytest.mark.parametrize("case", AWKWARD, ids=str)
def test_right_law_passes(case: Case):
    rng = np.random.default_rng(0)
    law = oracles.enumerate_law(case.L)
    goodness.assert_law(draw(law, DRAWS, rng), law)
    goodness.assert_same_law(draw(law, DRAWS, rng), draw(law, DRAWS // 2, rng))


@pytest.mark.parametrize("case", [c for c in AWKWARD if c.n_items > 2], ids=str)
def test_wrong_law_is_rejected(case: Case):
    """With the sample size of the suite, an error of 12 % in each cell is seen."""
    rng = np.random.default_rng(1)
    law = oracles.enumerate_law(case.L)
    wrong = draw(disturbed(law, 0.12, rng), DRAWS, rng)
    with pytest.raises(AssertionError, match="do not follow the law"):
        goodness.assert_law(wrong, law)
    with pytest.raises(AssertionError, match="do not follow one law"):
        goodness.assert_same_law(draw(disturbed(law, 0.2, rng), DRAWS, rng), draw(law, DRAWS, rng))


def test_too_few_draws_are_refused():
    """At 200 draws a sampler with the odds of an item tripled may pass; at 1,000 it does not, and its draws are rejected."""
    rng, law = np.random.default_rng(3), oracles.enumerate_law(BY_NAME["generic"].L)
    with pytest.raises(ValueError, match="200 draws are too few"):
        goodness.assert_law(draw(law, 200, rng), law)
    goodness.assert_law(draw(law, 1000, rng), law)
    balance = {item: abs(sum(p for key, p in law.items() if item in key) - 0.5) for item in range(8)}
    best = min(balance, key=balance.__getitem__)
    weights = {key: p * (goodness.TILT if best in key else 1.0) for key, p in law.items()}
    tilted = {key: p / sum(weights.values()) for key, p in weights.items()}
    for _ in range(20):
        with pytest.raises(AssertionError, match="do not follow the law"):
            goodness.assert_law(draw(tilted, 1000, rng), law)


def test_symmetrised_kernel_is_rejected():
    """The mistake an NDPP library is most likely to make: sampling from the symmetric part of L."""
    L = BY_NAME["generic"].L
    wrong = draw(oracles.enumerate_law((L + L.T) / 2, size=3), DRAWS, np.random.default_rng(2))
    with pytest.raises(AssertionError):
        goodness.assert_law(wrong, oracles.enumerate_law(L, size=3))


def test_one_swapped_pair_of_items_is_rejected():
    law = oracles.enumerate_law(BY_NAME["block pairs"].L, size=3)
    other = {tuple(sorted({0: 1, 1: 0}.get(a, a) for a in S)): p for S, p in law.items()}
    goodness.assert_law(draw(other, DRAWS, np.random.default_rng(3)), law)  # a symmetry of this kernel: the same law
    law = oracles.enumerate_law(BY_NAME["generic"].L, size=3)
    other = {tuple(sorted({0: 1, 1: 0}.get(a, a) for a in S)): p for S, p in law.items()}
    with pytest.raises(AssertionError):
        goodness.assert_law(draw(other, DRAWS, np.random.default_rng(4)), law)


def test_impossible_outcome_fails_at_once():
    law = {(0,): 0.5, (1,): 0.5 - 1e-15, (2,): 1e-15}
    goodness.assert_law({(0,): 500, (1,): 500}, law)
    for impossible in ((2,), (0, 1)):
        with pytest.raises(AssertionError, match=r"zero|do not follow"):
            goodness.assert_law({(0,): 500, (1,): 500, impossible: 1}, law)


def test_counts_are_wanted_not_proportions():
    """A chi-square on proportions passes anything: it is refused."""
    law = {(0,): 0.5, (1,): 0.5}
    with pytest.raises(ValueError, match="proportions"):
        goodness.assert_law({(0,): 0.9, (1,): 0.1}, law)
    with pytest.raises(ValueError, match="proportions"):
        goodness.assert_counts([0.9, 0.1], [0.5, 0.5])
    with pytest.raises(AssertionError):
        goodness.assert_law({(0,): 900, (1,): 100}, law)


def test_misuse_is_an_error():
    with pytest.raises(ValueError, match="not a law"):
        goodness.assert_counts([50, 50], [0.5, 0.4])
    with pytest.raises(ValueError, match="draw more"):
        goodness.assert_counts([5, 5], [0.5, 0.5])
    with pytest.raises(ValueError, match="one probability per count"):
        goodness.assert_counts([50, 50], [0.5, 0.25, 0.25])


def test_lists_arrays_and_mappings_are_counted_alike():
    sets = [[2, 0], np.array([0, 2]), (1,), []]
    assert goodness.count_sets(sets) == goodness.count_sets({(0, 2): 2, (1,): 1, (): 1})


@pytest.mark.parametrize("draws", [300, 3000])
def test_false_alarm_rate_is_the_stated_one(draws: int):
    """2,000 tables of a law with many rare cells: the share of p-values below 5e-3 is 5e-3."""
    rng = np.random.default_rng(5)
    p = np.sort(rng.dirichlet(np.full(60, 0.5)))
    tables = rng.multinomial(draws, p, size=2_000)
    below = sum(goodness.goodness_of_fit(table, p)[0] < 5e-3 for table in tables)
    assert 1 <= below <= 22  # Binomial(2000, 5e-3) leaves this range once in 2,000 seeds
    pairs = rng.multinomial(draws, p, size=(800, 2))
    assert sum(goodness.homogeneity(pair) < 2.5e-2 for pair in pairs) in range(5, 38)


def test_many_samples_show_together_what_none_shows_alone():
    """An error of 20 % in each cell of twenty laws, 600 draws each."""
    rng = np.random.default_rng(8)
    for relative, seen in ((0.0, False), (0.2, True)):
        tables = []
        for case in AWKWARD:
            law = oracles.enumerate_law(case.L)
            drawn = draw(disturbed(law, relative, rng), 600, rng)
            tables.append(([drawn[key] for key in law], list(law.values())))
            goodness.assert_counts(*tables[-1])
        if seen:
            with pytest.raises(AssertionError, match="20 samples together"):
                goodness.assert_together(tables)
        else:
            goodness.assert_together(tables)
    goodness.assert_together([([40], [1.0])] * 2)  # one set has all the probability: nothing to see
    with pytest.raises(AssertionError, match="together"):
        goodness.assert_together([*tables[:2], ([40, 1], [1.0, 0.0])])  # something impossible


def test_false_alarm_rate_together():
    """Five laws with many rare cells, 100 draws each, 1,600 times: the share of p-values below 2.5e-2 is 2.5e-2."""
    rng, below = np.random.default_rng(9), 0
    p = [np.sort(rng.dirichlet(np.full(60, 0.5))) for _ in range(5)]
    for tables in zip(*(rng.multinomial(100, q, size=1600) for q in p)):
        try:
            goodness.assert_together(zip(tables, p), alpha=2.5e-2)
        except AssertionError:
            below += 1
        goodness.checks_made["together"] -= 1
    assert 18 <= below <= 64  # 40 ± 3.6 standard deviations


def test_tail_is_honest_far_out():
    """At the suite's level a cell that expects ten draws must not ring for a count that is only one in a million."""
    total, rare = 10_000, 1e-3
    p_value, _ = goodness.goodness_of_fit([29, total - 29], [rare, 1 - rare])  # P(Poisson(10) ≥ 29) = 8e-7
    assert 1e-7 < p_value < 1e-5


def test_mean():
    rng = np.random.default_rng(6)
    values = rng.standard_normal((10_000, 50)) + 3.0
    goodness.assert_mean(values, np.full(50, 3.0))
    goodness.assert_mean(np.ones(10), 1.0)
    for wrong in (values[:, 0] + 0.08, values + np.eye(50)[7] * 0.08):
        with pytest.raises(AssertionError, match="standard errors off"):
            goodness.assert_mean(wrong, np.full(np.shape(wrong)[1:], 3.0))
    with pytest.raises(AssertionError, match="standard errors off"):
        goodness.assert_mean(np.ones(10), 1.1)


# ---- oracles --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", AWKWARD, ids=str)
def test_oracles_agree(case: Case):
    """Double-precision enumeration, exact integers, and traces with 400 digits: three roads to one law."""
    exact = oracles.exact_law(case.X, case.W)
    total = sum(exact.ek)
    np.testing.assert_allclose(oracles.size_law(case.L), [float(e / total) for e in exact.ek], rtol=1e-11, atol=1e-14)
    traces = oracles.mp_ek_by_traces(case.X, case.W)
    for k in range(case.n_items + 1):
        other = traces[k] if k < len(traces) else 0
        assert abs(exact.ek[k] - other) <= mpmath.mpf(10) ** -60 * total
    for given in [(), (0,), (1,), (0, 2)]:
        for size, inclusion in exact.inclusion(given).items() if max(given, default=0) < case.n_items else ():
            if size in (None, *oracles.possible_sizes(case.L, given)):
                dense = oracles.inclusion_probabilities(case.L, size, given)
                np.testing.assert_allclose(dense, np.array(inclusion, float), atol=1e-12)


def exact_minors(case: Case) -> list[Fraction]:
    """det L_S of L = X W Xᵀ for every S, as rational numbers."""
    exact = oracles.exact_law(case.X, case.W)
    return [Fraction(value, 1 << exact.shift * i.bit_count()) for i, value in enumerate(exact.minors)]


def graded(case: Case, most: int) -> Case:
    """Rows of X times powers of two between 2^−most and 2^most."""
    powers = np.linspace(-most, most, case.n_items).round().astype(int)
    return Case(f"{case.name} over 2^±{most}", np.ldexp(case.X, powers[:, None]), case.W)


def cancelling(seed: int) -> Case:
    """L = (Y − Z)(Y − Z)ᵀ of rank 3 as a product with entries 2^16 times as large: most of its digits are lost."""
    rng = np.random.default_rng(seed)
    Y = rng.standard_normal((6, 3))
    W = np.block([[np.eye(3), -np.eye(3)], [-np.eye(3), np.eye(3)]])
    return Case(f"cancelling {seed}", np.hstack([Y, Y + 2.0**-8 * rng.standard_normal((6, 3))]), W)


ROUNDED = [
    *AWKWARD,
    *(graded(BY_NAME[name], most) for name in ("generic", "ondpp", "zero diagonal") for most in (12, 60)),
    *(Case(f"spread {s}", *random_ndpp(7, 5, np.random.default_rng(s), spread=s / 2)) for s in range(4)),
    *(cancelling(seed) for seed in range(3)),
]


@pytest.mark.parametrize("case", ROUNDED, ids=str)
def test_minors_are_within_their_rounding_errors(case: Case):
    """Against rational arithmetic: no minor is further off than it says, and no zero or positive one changes sides."""
    error = oracles.product_error(case.X, case.W)
    values, rounding = oracles.minors_with_rounding(case.L, error)
    minors = oracles.minors(case.L, error)
    for i, true in enumerate(exact_minors(case)):
        assert abs(Fraction(values[i]) - true) <= Fraction(rounding[i])
        assert minors[i] == (values[i] if true > rounding[i] else 0), (i, float(true))


@pytest.mark.parametrize("case", [c for c in AWKWARD if c.name != "ondpp"], ids=str)
@pytest.mark.parametrize("error", [0.0, 2.0**-30])
def test_minors_bear_the_error_that_is_declared(case: Case, error: float):
    """L is exact in these cases, so that elimination has to answer for itself; then every entry is put off."""
    signs = np.random.default_rng(11).choice([-1.0, 1.0], case.L.shape)
    bound = error * np.abs(case.L).max() * np.ones_like(case.L)
    values, rounding = oracles.minors_with_rounding(case.L + signs * bound, bound)
    assert all(abs(Fraction(values[i]) - true) <= Fraction(rounding[i]) for i, true in enumerate(exact_minors(case)))


def test_rounded_entries_are_the_default():
    """Each entry of ones((2, 2)) is taken to be 4 EPS off at most, which makes 16 EPS in the determinant."""
    off = np.array([[1.0, -1.0], [-1.0, 1.0]]) * 4 * oracles.EPS
    assert oracles.minors(np.ones((2, 2)) - off)[-1] == oracles.minors(np.ones((2, 2)) + off)[-1] == 0
    assert oracles.minors(np.ones((2, 2)) + 16 * off)[-1] > 0
    with pytest.raises(AssertionError, match="not an NDPP"):
        oracles.minors(np.ones((2, 2)) - 16 * off)


@pytest.mark.parametrize("case", [c for c in ROUNDED if "spread" not in c.name and "cancel" not in c.name], ids=str)
def test_impossible_sets_are_known_from_the_matrix_alone(case: Case):
    assert [bool(value) for value in oracles.minors(case.L)] == [bool(true) for true in exact_minors(case)]


def test_lost_digits_have_to_be_declared():
    """Negative control of ``product_error``: L alone does not tell how it was rounded."""
    case = cancelling(0)
    assert not oracles.minors(case.L, oracles.product_error(case.X, case.W))[-1]
    values, rounding = oracles.minors_with_rounding(case.L)
    assert any(abs(values[i] - true) > rounding[i] for i, true in enumerate(exact_minors(case)))


@pytest.mark.parametrize("others", [0, 6])
def test_small_minors_are_kept_and_negative_ones_refused(others: int):
    """[[1, 1], [1, 1 + x]] has determinant x, whatever stands beside it."""

    def with_minor(x: float) -> np.ndarray:
        return block_diag(np.eye(others), [[1.0, 1.0], [1.0, 1.0 + x]])

    pair = 0b11 << others
    for grade in (np.ones(others + 2), np.ldexp(1.0, 7 * np.arange(others + 2))):
        scaling = grade[:, None] * grade
        for x in (1e-4, 2.0**-40, 1e-12):
            found = oracles.minors(with_minor(x) * scaling)[pair] / grade[-2:].prod() ** 2
            assert found == pytest.approx(x, abs=2 * oracles.EPS)  # 1 + x is rounded, too
        for x in (-1e-4, -1e-10, -1e-12):
            with pytest.raises(AssertionError, match="not an NDPP"):
                oracles.minors(with_minor(x) * scaling)
        assert oracles.minors(with_minor(0.0) * scaling)[pair] == 0


@pytest.mark.parametrize("rank", [1, 2, 4, 7])
def test_minors_beyond_the_rank_are_zero(rank: int):
    """Gaussian X, so that no entry of L is exact: sets larger than the rank are impossible all the same."""
    rng = np.random.default_rng(rank)
    for _ in range(20):
        X = rng.standard_normal((8, rank))
        assert oracles.possible_sizes(X @ (np.eye(rank) + skew(rng.standard_normal((rank, rank)))) @ X.T)[-1] == rank


def test_oracles_agree_on_widely_spread_kernels():
    for mixed in (True, False):
        X, W = random_ndpp(10, 8, np.random.default_rng(7), spread=6, mixed=mixed)
        exact = oracles.exact_law(X, W)
        for k, other in enumerate(oracles.mp_ek_by_traces(X, W)):
            assert abs(exact.ek[k] / other - 1) < mpmath.mpf(10) ** -60


def test_more_checks_than_declared_fail_the_run(tmp_path: Path):
    helpers = Path(__file__).parent
    for path in (helpers.parent / "conftest.py", helpers / "goodness.py"):
        text = path.read_text(encoding="utf-8")
        (tmp_path / path.name).write_text(
            text.replace(f"SUITE_CHECKS = {goodness.SUITE_CHECKS}", "SUITE_CHECKS = 3"), encoding="utf-8"
        )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")  # the folder for temporary files may be part of a checkout
    (tmp_path / "test_four.py").write_text(
        "import goodness, pytest\n@pytest.mark.parametrize('i', range(4))\ndef test(i): goodness.assert_mean([1, 2], 1.5)\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # all of them take seconds to import
    command = [sys.executable, "-m", "pytest", "-p", "xdist", "-n", "1", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    assert "4 passed" in done.stdout
    assert "4 law checks were made" in done.stdout


def test_laws_of_a_kernel_known_by_hand():
    """L = [[1/2, 1], [−1, 1/4]]: minors 1, 1/2, 1/4, 9/8."""
    L = BY_NAME["two items"].L
    law = oracles.enumerate_law(L)
    assert law == pytest.approx({(): 8 / 23, (0,): 4 / 23, (1,): 2 / 23, (0, 1): 9 / 23})
    assert oracles.size_law(L) == pytest.approx(np.array([8, 6, 9]) / 23)
    assert oracles.inclusion_probabilities(L, size=1) == pytest.approx([2 / 3, 1 / 3])
    assert oracles.inclusion_probabilities(L, given=[1]) == pytest.approx([9 / 11, 1])
    assert oracles.enumerate_law(L, exclude=[0]) == pytest.approx({(): 4 / 5, (1,): 1 / 5})
    assert oracles.law_of_rest(L, [0]) == pytest.approx({(): 4 / 13, (1,): 9 / 13})
    assert oracles.log_ek(L, 2) == pytest.approx(np.log(9 / 8))


def test_table_of_awkward_kernels_is_awkward():
    """Each case has the property it is named after."""
    assert oracles.possible_sizes(BY_NAME["purely skew"].L) == [0, 2, 4]
    assert oracles.possible_sizes(BY_NAME["singular W"].L) == [0, 1, 2, 3]
    zero = BY_NAME["zero diagonal"].L
    assert np.flatnonzero(np.diag(zero) == 0).tolist() == [0, 1, 2, 5]
    assert oracles.inclusion_probabilities(zero)[[0, 1, 2, 5]].min() > 0.1
    for name, A in (("broken pairs", [0, 2]), ("singular L_A", [0, 1])):
        L = BY_NAME[name].L
        assert np.linalg.det(L[np.ix_(A, A)]) == 0
        assert oracles.size_law(L)[4] > 0
        assert any(set(A) <= set(S) for S in oracles.enumerate_law(L))
    jordan = BY_NAME["far from normal"].W
    assert np.linalg.matrix_rank(jordan - np.eye(5)) == 4  # one eigenvector for five equal eigenvalues
    for case in AWKWARD:
        assert np.linalg.eigvalsh(case.L + case.L.T)[0] > -1e-9 * np.abs(case.L).max()
    assert len(BY_NAME) == len(AWKWARD)
