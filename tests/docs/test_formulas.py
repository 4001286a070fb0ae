"""Every displayed formula of the pages about theory, evaluated as it is displayed and compared with enumeration.

A test is named after the label of its formula, and its docstring quotes it: a formula that changes on its page fails until its test has
been changed. What the formulas are about is computed here in the plainest way, from minors of small matrices with complex eigenvalues.
``python tests/docs/test_formulas.py`` writes the list of formulas in docs/theory.md.
"""

from __future__ import annotations

import re
from itertools import combinations, product
from math import factorial
from pathlib import Path

import numpy as np
import pytest

import ndpp

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = ("theory", "theory-laws", "mixtures", "limits", "architecture", "gpu", "gpu-internals")
DISPLAY = re.compile(r"^\$\$\s*(.*?)\s*\$\$(?: \(([\w-]+)\))?$", re.MULTILINE | re.DOTALL)
LIST = re.compile(r"(<!-- formulas: checked by \S+ -->\n).*?(<!-- formulas: end -->)", re.DOTALL)
DEFINITIONS = {"conditional-resolvent": "Z", "tilt": "tilted laws", "size-lift": "s(a, b)"}
"""Displays that define what they show."""


# -- one kernel --------------------------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(2)
N_ITEMS, RANK = 7, 5
X = RNG.normal(size=(N_ITEMS, RANK))
SKEW = RNG.normal(size=(RANK, RANK))
W = np.diag([0.3, 0.0, 0.5, 0.1, 0.8]) + SKEW - SKEW.T
L = X @ W @ X.T
Q, T = np.linalg.qr(X)
B = T @ W @ T.T
EYE = np.eye(RANK)
LEVERAGE = (Q**2).sum(axis=1)
SETS = [S for k in range(N_ITEMS + 1) for S in combinations(range(N_ITEMS), k)]
SIZE = np.array([len(S) for S in SETS])
GIVEN = [(), (3,), (0, 4), (5, 1, 2)]
TIMES = [0.6, 2.0, 0.4 + 0.9j]
ALIASED = [
    ((), 2, 0.1, 2),
    ((), 3, 0.3, 2),
    ((), 1, 0.1, 4),
    ((3,), 2, 0.03, 2),
    ((3,), 3, 0.2, 2),
    ((0, 4), 3, 0.05, 2),
]
"""Items, a size, a radius, and too few nodes."""


def minor(A, S):
    return np.linalg.det(A[np.ix_(S, S)])


def minors(A, sets=SETS):
    return np.array([minor(A, S) for S in sets])


WEIGHT = minors(L)


def holds(Y, sets=SETS):
    return np.array([set(Y) <= set(S) for S in sets])


def chance(event, given=True):
    """P(event | given), for arrays of booleans, by enumeration."""
    return WEIGHT[event & given].sum() / WEIGHT[np.broadcast_to(given, WEIGHT.shape)].sum()


def e(k):
    return WEIGHT[k == SIZE].sum()


def R(t):
    return t * B @ np.linalg.inv(EYE + t * B)


def Z(Y, t):
    q = Q[list(Y)]
    return R(t) - R(t) @ q.T @ np.linalg.inv(q @ R(t) @ q.T) @ q @ R(t) if len(Y) else R(t)


def w(Y, t):
    """Σ t^|S| det L_S over S ⊇ Y, by enumeration."""
    return (t ** SIZE[holds(Y)] * WEIGHT[holds(Y)]).sum()


def circle(radius, count, offset=0.5):
    return radius * np.exp(2j * np.pi * (np.arange(count) + offset) / count)


def coefficient(f, k, radius=1.0):
    """[t^k] of a polynomial of degree below 12."""
    t = circle(radius, 12)
    return sum(f(t_j) * t_j**-k for t_j in t).real / 12


def M(Y, k):
    """The inclusion matrix, from more nodes than the degree."""
    return coefficient(lambda t: w(Y, t) * Z(Y, t), k) / coefficient(lambda t: w(Y, t), k)


def M_N(Y, k, radius, count):
    """The same by the rule with ``count`` nodes, and what it does not alias, Σ p_{k+sN} / p_k over s ≠ 0."""
    t = circle(radius, count)
    parts = [t_j**-k * w(Y, t_j) for t_j in t]
    p = np.array([radius**m * WEIGHT[holds(Y) & (m == SIZE)].sum() for m in range(N_ITEMS + 1)])
    aliased = sum(p[m] for m in range(N_ITEMS + 1) if m != k and (m - k) % count == 0) / p[k]
    return sum(part * Z(Y, t_j) for part, t_j in zip(parts, t)).real / sum(parts).real, aliased, p


def nuclear(A):
    return np.abs(np.linalg.eigvalsh((A + A.T) / 2)).sum()


def same(*values, tolerance=1e-9):
    for value in values[1:]:
        np.testing.assert_allclose(value, values[0], rtol=tolerance, atol=tolerance)


def test_the_kernel_has_complex_eigenvalues_and_nonnegative_minors():
    assert np.abs(np.linalg.eigvals(B).imag).max() > 0.5
    assert WEIGHT.min() > -1e-9
    assert np.abs(L - L.T).max() > 1


def test_coordinates():
    r"""L = Q B Q^\top, \qquad \sum_a q_a q_a^\top = I_r, \qquad \ell_a := \|q_a\|^2, \qquad \sum_a \ell_a = r ."""
    same(L, Q @ B @ Q.T)
    same(sum(np.outer(q, q) for q in Q), EYE)
    same(LEVERAGE.sum(), RANK)


def test_null_space():
    r"""& B = U B_0 U^\top, \qquad B_0 = U^\top B U \text{ invertible}, \\
    & L = (QU)\,B_0\,(QU)^\top, \qquad \operatorname{rank} B_0 = \operatorname{rank} L ."""
    rng = np.random.default_rng(0)
    wide = np.zeros((6, 6))
    wide[:2, :2], wide[2:4, 2:4] = [[0.5, 2], [-2, 0.1]], [[0, 1], [-1, 0]]
    for columns, inner in ((rng.normal(size=(8, 6)), wide), (rng.normal(size=(8, 3)) @ rng.normal(size=(3, 6)), wide)):
        kernel = columns @ inner @ columns.T
        q, singular, right = np.linalg.svd(columns, full_matrices=False)
        kept = singular > 1e-9
        q, T_ = q[:, kept], singular[kept, None] * right[kept]
        core = T_ @ inner @ T_.T
        left, values, _ = np.linalg.svd(core)
        U = left[:, values > 1e-9]
        core_0 = U.T @ core @ U
        same(core, U @ core_0 @ U.T)
        same(kernel, (q @ U) @ core_0 @ (q @ U).T)
        assert np.linalg.matrix_rank(core_0) == len(core_0) == np.linalg.matrix_rank(kernel, tol=1e-9)
        law = ndpp.LowRankKernel(columns, inner)
        assert law.rank == len(core_0)
        same(law.coordinates.leverage.sum(), law.rank)
    assert ndpp.LowRankKernel([[1.0, 1.0]], [[0.0, 1.0], [-1.0, 0.0]]).rank == 0


def test_size_law():
    r"""\sum_S t^{|S|} \det L_S = \det(I + tL) = \det(I_r + tB) = \prod_{i=1}^{r} (1 + t\lambda_i) = \sum_{k=0}^{r} e_k t^k ,"""
    for t in TIMES:
        same(
            (t**SIZE * WEIGHT).sum(),
            np.linalg.det(np.eye(N_ITEMS) + t * L),
            np.linalg.det(EYE + t * B),
            np.prod(1 + t * np.linalg.eigvals(B)),
            sum(e(k) * t**k for k in range(RANK + 1)),
        )


def test_tilted_sizes():
    r"""\sum_k z^k p_k(\rho) &= \frac{\det(I + \rho z B)}{\det(I + \rho B)} = \det\big(I - R(\rho) + zR(\rho)\big) \\
    &= \prod_i (1 - \mu_i + z\mu_i), \qquad p_k(\rho) = \frac{e_k\rho^k}{\det(I + \rho B)} ."""
    rho = 1.7
    mu = np.linalg.eigvals(R(rho))
    p = np.array([e(k) * rho**k / np.linalg.det(EYE + rho * B) for k in range(RANK + 1)])
    tilted = rho**SIZE * WEIGHT
    same(p, [tilted[k == SIZE].sum() / tilted.sum() for k in range(RANK + 1)])
    for z in TIMES:
        same(
            sum(z**k * p[k] for k in range(RANK + 1)),
            np.linalg.det(EYE + rho * z * B) / np.linalg.det(EYE + rho * B),
            np.linalg.det(EYE - R(rho) + z * R(rho)),
            np.prod(1 - mu + z * mu),
        )


def test_tilted_mean():
    r"""& \sum_k k\, p_k(\rho) = \operatorname{tr} R(\rho), \\
    & \frac{\mathrm{d}\operatorname{tr}R(\rho)}{\mathrm{d}\log\rho} = \operatorname{tr}(R - R^2) = \text{variance of } p(\rho) \ge 0"""
    rho, step = 1.7, 1e-5
    p = rho**SIZE * WEIGHT / (rho**SIZE * WEIGHT).sum()
    mean = p @ SIZE
    same(mean, np.trace(R(rho)))
    slope = (np.trace(R(rho * np.exp(step))) - np.trace(R(rho * np.exp(-step)))) / (2 * step)
    same(p @ (SIZE - mean) ** 2, np.trace(R(rho) - R(rho) @ R(rho)), slope, tolerance=1e-8)


def test_master():
    r"""w_Y(t) := \sum_{S \supseteq Y} t^{|S|} \det L_S \;=\; \det(I + tB)\,\det\!\big(Q_Y R(t) Q_Y^\top\big) ."""
    for Y in GIVEN:
        for t in TIMES:
            q = Q[list(Y)]
            same(w(Y, t), np.linalg.det(EYE + t * B) * np.linalg.det(q @ R(t) @ q.T))


def test_inclusion():
    r"""\Pr(a \in S \mid Y \subseteq S, |S| = k) = q_a^\top M q_a, \qquad
    M = M_k^Y = \frac{[t^k]\; w_Y(t)\, Z^Y(t)}{[t^k]\; w_Y(t)} ."""
    for Y in GIVEN:
        for k in range(len(Y) + 1, RANK + 1):
            m = M(Y, k)
            expected = [chance(holds([a]), holds(Y) & (k == SIZE)) for a in range(N_ITEMS) if a not in Y]
            same(expected, [Q[a] @ m @ Q[a] for a in range(N_ITEMS) if a not in Y])
            same(np.trace(m), k - len(Y))
            same(0 * Q[list(Y)], Q[list(Y)] @ m, Q[list(Y)] @ m.T)


def test_bordered():
    r"""\det(I + tB)\det(\tilde U R(t) \tilde V^\top) = \det\begin{bmatrix} I + tB & \tilde V^\top \\
    \tilde U & \tilde U \tilde V^\top \end{bmatrix}"""
    rng = np.random.default_rng(1)
    U, V = (np.vstack([Q[[0, 4]], rng.normal(size=RANK)]) for _ in range(2))
    for t in TIMES:
        same(
            np.linalg.det(EYE + t * B) * np.linalg.det(U @ R(t) @ V.T),
            np.linalg.det(np.block([[EYE + t * B, V.T], [U, U @ V.T]])),
        )


def test_telescoping():
    r"""\prod_{i=0}^{k-m-1} \frac{\Pr(Y_{i+1} \subseteq S \mid Y_i \subseteq S, |S| = k)}{k - m - i}
    &= \frac{\Pr(Y_{k-m} \subseteq S \mid Y_0 \subseteq S, |S| = k)}{(k-m)!} \\
    &= \frac{\Pr(S = Y_{k-m} \mid Y_0 \subseteq S, |S| = k)}{(k-m)!} ,"""
    k, path = 4, [(2,), (2, 6), (2, 6, 0), (2, 6, 0, 3)]
    sized, m = k == SIZE, 1
    steps = [chance(holds(path[i + 1]), holds(path[i]) & sized) / (k - m - i) for i in range(k - m)]
    end = np.array([set(S) == set(path[-1]) for S in SETS])
    same(
        np.prod(steps),
        chance(holds(path[-1]), holds(path[0]) & sized) / factorial(k - m),
        chance(end, holds(path[0]) & sized) / factorial(k - m),
    )


def test_leverage():
    r"""0 \;\le\; q_a^\top M q_a \;\le\; \|(I - P_Y) q_a\|^2 \;\le\; \ell_a ."""
    for Y in GIVEN:
        P = np.linalg.pinv(Q[list(Y)]) @ Q[list(Y)] if Y else 0 * EYE
        for k in range(len(Y) + 1, RANK + 1):
            m = M(Y, k)
            forms, off = np.einsum("ia,ab,ib->i", Q, m, Q), np.square(Q @ (EYE - P)).sum(axis=1)
            assert forms.min() >= -1e-9
            assert (forms <= off + 1e-9).all()
            assert (off <= LEVERAGE + 1e-9).all()
            values = np.linalg.eigvalsh((m + m.T) / 2)
            assert values.min() >= -1e-9
            assert values.max() <= 1 + 1e-9


def test_rotated():
    r"""u^\top M u = \frac{[t^k]\, \tilde w_{\{1..m\}}\, \tilde Z^{\{1..m\}}_{m+1,m+1}}{[t^k]\, \tilde w_{\{1..m\}}}
    = \tilde{\Pr}\big(m{+}1 \in \tilde S \mid \{1, \dots, m\} \subseteq \tilde S, |\tilde S| = k\big) ,"""
    Y, k, m = (0, 4), 4, 2
    start = np.column_stack([Q[list(Y)].T, np.random.default_rng(3).normal(size=(RANK, RANK - m))])
    U = np.linalg.qr(start)[0]
    rotated, u = U.T @ B @ U, U[:, m]
    sets = [S for j in range(RANK + 1) for S in combinations(range(RANK), j)]
    weights = {S: minor(rotated, S) for S in sets if len(S) == k and {0, 1} <= set(S)}
    first = list(range(m))

    def parts(t):
        r = U.T @ R(t) @ U
        weight = np.linalg.det(EYE + t * rotated) * np.linalg.det(r[:m, :m])
        return weight, (r - r[:, first] @ np.linalg.inv(r[:m, :m]) @ r[first])[m, m]

    same(
        u @ M(Y, k) @ u,
        coefficient(lambda t: np.prod(parts(t)), k) / coefficient(lambda t: parts(t)[0], k),
        sum(value for S, value in weights.items() if m in S) / sum(weights.values()),
    )


def test_acceptance():
    r"""\sum_a \frac{\ell_a}{r}\cdot\frac{q_a^\top M q_a}{\ell_a} = \frac{\operatorname{tr} M}{r} = \frac{k - i}{r},"""
    for Y in GIVEN:
        k, m = 4, M(Y, 4)
        chances = sum(LEVERAGE[a] / RANK * (Q[a] @ m @ Q[a]) / LEVERAGE[a] for a in range(N_ITEMS))
        same(chances, np.trace(m) / RANK, (k - len(Y)) / RANK)


def test_full_size():
    r"""\Pr(S \mid |S| = r) = \det(Q_S)^2, \qquad M = I - P_Y \quad \text{at } k = r ."""
    for S in combinations(range(N_ITEMS), RANK):
        same(chance(np.array([set(S) == set(other) for other in SETS]), RANK == SIZE), np.linalg.det(Q[list(S)]) ** 2)
    for Y in GIVEN:
        P = np.linalg.pinv(Q[list(Y)]) @ Q[list(Y)] if Y else 0 * EYE
        same(M(Y, RANK), EYE - P)


def test_alias():
    r"""\frac{1}{N}\sum_{j} t_j^{-k} f(t_j) = \sum_{m \equiv k \,(\mathrm{mod}\, N)} e^{2\pi i \phi (m-k)/N}\; c_m \rho^{m-k} ."""
    c, count, k, rho = np.random.default_rng(4).normal(size=9), 3, 4, 0.8
    for phi in (0.0, 0.5, 0.2):
        t = circle(rho, count, phi)
        same(
            sum(t_j**-k * np.polyval(c[::-1], t_j) for t_j in t) / count,
            sum(
                np.exp(2j * np.pi * phi * (m - k) / count) * c[m] * rho ** (m - k)
                for m in range(9)
                if (m - k) % count == 0
            ),
        )


def test_alias_bound():
    r"""|u^\top M_N u - u^\top M u| \le \frac{\delta}{1 - \delta} \qquad \text{for every unit vector } u ."""
    for Y, k, radius, count in ALIASED:
        rule, delta, _ = M_N(Y, k, radius, count)
        assert 1e-4 < delta < 1
        values = np.linalg.eigvalsh(((rule - M(Y, k)) + (rule - M(Y, k)).T) / 2)
        assert 1e-6 < np.abs(values).max() <= delta / (1 - delta)


def test_rank_one():
    r"""u = Z q, \quad v^\top = q^\top Z, \quad \pi = q^\top Z q, \qquad Z^{Y \cup a} = Z - \frac{u v^\top}{\pi},
    \qquad w_{Y \cup a} = w_Y\, \pi ."""
    for Y in GIVEN:
        for t in TIMES:
            z, q = Z(Y, t), Q[6]
            u, v, pi = z @ q, q @ z, q @ z @ q
            same(Z((*Y, 6), t), z - np.outer(u, v) / pi)
            same(w((*Y, 6), t), w(Y, t) * pi)


def test_eigen_form():
    r"""& V^{-1} Z_j^Y V = F_j - \sum_{i \le m} \zeta_{ji}\, \eta_{ji}^\top , \\
    & q_a^\top M_N q_a = \mathrm{Re} \sum_j \omega_j \Big( l_a^\top F_j\, r_a - \sum_{i \le m} (l_a^\top
    \zeta_{ji}) (\eta_{ji}^\top r_a) \Big) ,"""
    values, V = np.linalg.eig(B)
    left, right = Q @ V, Q @ np.linalg.inv(V).T  # rows l_a and r_a
    Y, k = (0, 4), 4
    for count, radius in ((8, 1.0), (3, 0.5)):
        t = circle(radius, count)
        F = [np.diag(t_j * values / (1 + t_j * values)) for t_j in t]
        dyads = [[] for _ in t]
        for j in range(count):
            for a in Y:
                z = F[j] - sum((np.outer(zeta, eta) for zeta, eta in dyads[j]), np.zeros_like(F[j]))
                dyads[j].append((z @ right[a], left[a] @ z / (left[a] @ z @ right[a])))
            rest = F[j] - sum(np.outer(zeta, eta) for zeta, eta in dyads[j])
            same(np.linalg.inv(V) @ Z(Y, t[j]) @ V, rest)
        weights = np.array([t_j**-k * w(Y, t_j) for t_j in t])
        omega = weights / weights.sum()
        rule = M_N(Y, k, radius, count)[0]
        for a in range(N_ITEMS):
            form = sum(
                omega[j]
                * (left[a] @ F[j] @ right[a] - sum((left[a] @ zeta) * (eta @ right[a]) for zeta, eta in dyads[j]))
                for j in range(count)
            ).real
            same(Q[a] @ rule @ Q[a], form)
            if count > RANK and a not in Y:
                same(form, chance(holds([a]), holds(Y) & (k == SIZE)))


def test_eigen_form_needs_the_real_part_of_the_whole_product():
    """A negative control: with the real part of the diagonal alone, as these pages once had it, the result is wrong."""
    values, V = np.linalg.eig(B)
    left, right = Q @ V, Q @ np.linalg.inv(V).T
    t = circle(1.0, 8)
    weights = np.array([t_j**-3 * w((), t_j) for t_j in t])
    inner = sum((weights / weights.sum())[j] * t[j] * values / (1 + t[j] * values) for j in range(8))
    true = np.array([chance(holds([a]), SIZE == 3) for a in range(N_ITEMS)])
    same((left @ np.diag(inner) * right).sum(axis=1).real, true)
    assert np.abs((left @ np.diag(inner.real) * right).sum(axis=1).real - true).max() > 1e-3


def test_surviving():
    r"""& \frac{\big|\mathrm{Re} \sum_j t_j^{-k} w_Y(t_j)\big|}{\sum_j |t_j^{-k} w_Y(t_j)|} \;\ge\; (1 -
    \delta)\,\frac{\rho^k\,[t^k] w_Y}{w_Y(\rho)} \\
    & \qquad = (1 - \delta)\Pr\nolimits_\rho(|S| = k \mid Y \subseteq S) ."""
    for Y, k, radius, count in (*ALIASED, ((0, 4), 3, 1.0, 8), ((), 4, 3.0, 8)):
        parts = [t_j**-k * w(Y, t_j) for t_j in circle(radius, count)]
        _, delta, p = M_N(Y, k, radius, count)
        same(radius**k * coefficient(lambda t, Y=Y: w(Y, t), k) / w(Y, radius), p[k] / p.sum())
        assert abs(sum(parts).real) / np.abs(parts).sum() >= (1 - delta) * p[k] / p.sum() - 1e-12


def test_given_mean():
    r"""\mathbb{E}_\rho[\,|S| \mid Y \subseteq S\,] = |Y| + \operatorname{tr} Z^Y(\rho),"""
    for Y in GIVEN:
        tilted = 1.3**SIZE * WEIGHT * holds(Y)
        same(tilted @ SIZE / tilted.sum(), len(Y) + np.trace(Z(Y, 1.3)))


def test_up_step():
    r"""F = \operatorname{tr}(B^A)\, B^A - (B^A)^2, \qquad G_a = (q_a^\top B^A q_a)\, B^A - B^A q_a q_a^\top B^A ."""
    A = (0, 4)
    q = Q[list(A)]
    inner = B - B @ q.T @ np.linalg.inv(q @ B @ q.T) @ q @ B
    F = np.trace(inner) * inner - inner @ inner
    others = [a for a in range(N_ITEMS) if a not in A]
    first = np.einsum("ia,ab,ib->i", Q, F, Q)
    pair = {}
    for a in others:
        G = (Q[a] @ inner @ Q[a]) * inner - np.outer(inner @ Q[a], Q[a] @ inner)
        second = np.einsum("ia,ab,ib->i", Q, G, Q)
        same(second.sum(), first[a])
        for b in others:
            pair[a, b] = second[b] / first.sum()
    for a, b in combinations(others, 2):
        end = np.array([set(S) == {*A, a, b} for S in SETS])
        same(pair[a, b] + pair[b, a], chance(end, holds(A) & (SIZE == 4)))
    assert np.linalg.eigvalsh(F + F.T).min() > -1e-9
    assert (first / (np.trace(F) / 2) <= LEVERAGE + 1e-9).all()


def test_clock_ratio():
    r"""\frac{\sum_T s'^{|T|} \det L_{Y \cup T}}{\sum_T s^{|T|}\det L_{Y \cup T}} = \frac{g_Y(s')}{g_Y(s)} ,"""
    for Y in GIVEN:
        q = Q[list(Y)]

        def g(s, q=q, Y=Y):
            return s ** -len(Y) * np.linalg.det(EYE + s * B) * np.linalg.det(q @ R(s) @ q.T)

        left = [(s ** (SIZE - len(Y)) * WEIGHT)[holds(Y)].sum() for s in (0.3, 0.8)]
        same(left[0] / left[1], g(0.3) / g(0.8))


def test_clock_rate():
    r"""\frac{\mathrm{d}\log g_Y}{\mathrm{d}\log s} = \mathbb{E}_s\big[\,|S| - |Y| \;\big|\; Y \subseteq S\big]
    = \operatorname{tr} Z^Y(s) ,"""
    s, step = 0.4, 1e-5
    for Y in GIVEN:
        low, high = (np.log(w(Y, s * np.exp(h))) - len(Y) * h for h in (-step, step))
        tilted = s**SIZE * WEIGHT * holds(Y)
        same(
            np.trace(Z(Y, s)), tilted @ (SIZE - len(Y)) / tilted.sum(), (high - low) / (2 * step), tolerance=1e-7
        )  # fmt: skip


def test_clock_stop():
    r"""& \Pr(\text{a further item} \mid Y \text{ at time } x) \le \operatorname{tr} Z^Y(e^{-x}) , \\
    & \Pr(\text{an item after time } x) \le \mathbb{E}|S|\, e^{-x} \le r e^{-x} ."""
    for x in (0.0, 1.0, 5.0):
        s = np.exp(-x)
        for Y in GIVEN:
            further = 1 - minor(L, Y) / (s ** -len(Y) * w(Y, s))
            assert 0 <= further <= np.trace(Z(Y, s)) + 1e-12
        late = 1 - WEIGHT @ (1 - s) ** SIZE.astype(float) / WEIGHT.sum()
        assert late <= WEIGHT @ SIZE / WEIGHT.sum() * s + 1e-12 <= RANK * s + 1e-12


def test_passes():
    r"""\frac{\det(\rho L_S)}{\sum_{|T| = k} \det(\rho L_T)} = \frac{\det L_S}{e_k(L)} , \qquad
    p = \frac{\rho^k e_k(L)}{\det(I + \rho L)} ."""
    for rho, k in ((0.2, 1), (0.7, 2), (3.0, 4)):
        scaled, of_size = minors(rho * L), k == SIZE
        same(scaled[of_size] / scaled[of_size].sum(), WEIGHT[of_size] / e(k))
        p = scaled[of_size].sum() / scaled.sum()
        same(p, rho**k * e(k) / np.linalg.det(np.eye(N_ITEMS) + rho * L))


# -- errors --------------------------------------------------------------------------------------------------------------------------


def test_error_items():
    r"""\mathrm{TV} \le \sum_{i < k} \frac{1}{k - i}\,\mathbb{E}\,\big\|\operatorname{sym}(\tilde M_i - M_i)\big\|_* ."""
    k, rng, bound = 3, np.random.default_rng(5), 0.0
    drawn = dict.fromkeys(SETS, 0.0)
    paths = {(): (1.0, 1.0)}  # the right probability, and that of what is drawn
    for i in range(k):
        following = {}
        for Y, (right, wrong) in paths.items():
            m = M(Y, k)
            other = m + 1e-3 * rng.normal(size=m.shape)
            bound += right * nuclear(other - m) / (k - i)
            x, y = (np.einsum("ia,ab,ib->i", Q, A, Q) for A in (m, other))
            y = np.clip(y / LEVERAGE, 0, 1) * LEVERAGE
            x[list(Y)] = 0.0
            for a in range(N_ITEMS):
                before = following.get((*Y, a), (0.0, 0.0))
                following[(*Y, a)] = before[0] + right * x[a] / x.sum(), before[1] + wrong * y[a] / y.sum()
        paths = {Y: pair for Y, pair in following.items() if pair[0] > 0}
        # Paths that only the wrong matrices take count as wrong from then on.
        drawn[()] += sum(pair[1] for Y, pair in following.items() if pair[0] <= 0)
    for Y, (_, wrong) in paths.items():
        drawn[tuple(sorted(Y))] += wrong
    right = {S: WEIGHT[i] / e(k) if len(S) == k else 0.0 for i, S in enumerate(SETS)}
    distance = sum(abs(drawn[S] - right[S]) for S in SETS) / 2
    assert 1e-5 < distance <= bound


def test_error_clock():
    r"""\mathrm{TV} \le \mathbb{E} \int_0^\infty \big\|\operatorname{sym}\big(\tilde Z^{Y_x}(e^{-x}) - Z^{Y_x}(e^{-x})\big)\big\|_*
    \,\mathrm{d}x ."""
    small = np.array([[0.4, 2.0, 0.3], [-1.5, 0.2, 1.0], [0.3, -0.8, 0.5]])  # L = B, Q = I: three items
    sets = [S for k in range(4) for S in combinations(range(3), k)]
    law = minors(small, sets) / minors(small, sets).sum()
    wrong = 2e-2 * np.random.default_rng(6).normal(size=(3, 3))

    error = [np.array([[a not in Y and b not in Y for b in range(3)] for a in range(3)]) * wrong for Y in sets]
    step = 0.1
    steps = np.arange(0, 14, step / 2)

    def rates(Y, x):
        z, y = np.exp(-x) * small @ np.linalg.inv(np.eye(3) + np.exp(-x) * small), list(Y)
        return np.diag(z - z[:, y] @ np.linalg.inv(z[np.ix_(y, y)]) @ z[y]) if y else np.diag(z)

    right = np.array([[rates(Y, x) for Y in sets] for x in steps])
    bad = np.exp(-steps)[:, None, None] * np.array([np.diag(one) for one in error])
    off = np.array([nuclear(one) for one in error])
    after = [[sets.index(tuple(sorted({*Y, a}))) for a in range(3)] for Y in sets]

    def flow(p, i, wrong):
        each = (right[i] + wrong * bad[i]).clip(0) * p[:-1, None]
        out = np.bincount(np.ravel(after), each.ravel(), len(sets)) - each.sum(axis=1)
        return np.append(out, p[:-1] @ off * np.exp(-steps[i]))

    ends = []
    for wrong in (0.0, 1.0):
        p = np.append(np.eye(1, len(sets))[0], 0.0)
        for i in range(0, len(steps) - 2, 2):  # Runge–Kutta
            a = flow(p, i, wrong)
            b = flow(p + step / 2 * a, i + 1, wrong)
            c = flow(p + step / 2 * b, i + 1, wrong)
            d = flow(p + step * c, i + 2, wrong)
            p = p + step / 6 * (a + 2 * b + 2 * c + d)
        ends.append(p)
    same(law, ends[0][:-1], tolerance=1e-5)
    distance = np.abs(ends[1][:-1] - law).sum() / 2
    assert 1e-3 < distance <= ends[1][-1]


def test_error_projection():
    r"""\mathrm{TV} \le \|\tilde K - K\|_* ."""
    rng = np.random.default_rng(7)
    sets = [S for k in range(6) for S in combinations(range(5), k)]

    def law(K):
        return np.array([abs(np.linalg.det(K - np.diag([a not in S for a in range(5)]))) for S in sets])

    for scale in (1e-3, 0.1):
        V = np.linalg.qr(rng.normal(size=(5, 5)))[0]
        K = V @ np.diag([0.0, 0.2, 0.7, 1.0, 1.0]) @ V.T
        U = np.linalg.qr(V + scale * rng.normal(size=(5, 5)))[0]
        other = U @ np.diag([0.02, 0.1, 0.7, 0.95, 1.0]) @ U.T
        same(law(K).sum(), law(other).sum(), 1.0)
        assert 1e-3 < np.abs(law(K) - law(other)).sum() / 2 <= nuclear(K - other)


def test_error_alias():
    r"""\frac1m \big\|\operatorname{sym}(M_N - M)\big\|_* \le \frac{1}{1 - \delta} \sum_{s \ne 0} \Big(2 + \frac{sN}{m}\Big)
    \frac{p_{k+sN}}{p_k} ."""
    for Y, k, radius, count in ALIASED:
        rule, delta, p = M_N(Y, k, radius, count)
        m = k - len(Y)
        terms = [((j - k) // count, p[j]) for j in range(N_ITEMS + 1) if j != k and (j - k) % count == 0]
        bound = sum((2 + s * count / m) * value / p[k] for s, value in terms) / (1 - delta)
        error = nuclear(rule - M(Y, k)) / m
        assert 1e-6 < error <= bound
        if count > m and delta < 0.01:  # the trace shows it, to first order
            assert error <= (2 / count + 1 / m) * abs(np.trace(rule) - m) * (1 + 10 * delta)


def test_proposals():
    r"""\frac{\det(I + \hat L)}{\det(I + L)} \quad\text{or, at size } k, \quad \frac{e_k(\hat L)}{e_k(L)},"""
    values, vectors = np.linalg.eigh(1j * (W - W.T) / 2)
    hat = X @ ((W + W.T) / 2 + (vectors * np.abs(values) @ vectors.conj().T).real) @ X.T
    larger = minors(hat)
    assert (larger + 1e-9 >= WEIGHT).all()
    accepted = np.divide(WEIGHT, larger, out=np.zeros_like(WEIGHT), where=larger > 1e-9)
    eye = np.eye(N_ITEMS)
    same(1 / (larger / larger.sum() @ accepted), np.linalg.det(eye + hat) / np.linalg.det(eye + L))
    sized = SIZE == 3
    same(1 / (larger[sized] / larger[sized].sum() @ accepted[sized]), larger[sized].sum() / e(3))


def test_to_q():
    r"""L = X W X^\top = Q B Q^\top, \qquad Q = X \cdot \texttt{to\_q}, \qquad Q^\top Q = I ."""
    coordinates = ndpp.LowRankKernel(X, W).coordinates
    q = X @ coordinates.to_q
    same(q.T @ q, EYE)
    same(L, q @ coordinates.B @ q.T)


def test_node_sum():
    r"""M = \operatorname{Re} \sum_j w_j Z(t_j) \Big/ \operatorname{Re} \sum_j w_j , \qquad
    P(a \in S \mid \textit{pasta} \in S,\ |S| = 5) = q_a^\top M q_a ."""
    t = circle(1.0, 8)[:4]  # the upper half
    weights = [t_j**-5 * w((0,), t_j) for t_j in t]
    m = sum(w_j * Z((0,), t_j) for w_j, t_j in zip(weights, t)).real / sum(weights).real
    for a in range(1, N_ITEMS):
        same(Q[a] @ m @ Q[a], chance(holds([a]), holds([0]) & (SIZE == 5)))


def of_gpu(Y, k):
    """Nodes, their weights with real parts that sum to one, R_j, and an orthonormal basis of the rows of Y."""
    t = circle(1.0, 8)[:4]
    weights = np.array([t_j**-k * w(Y, t_j) for t_j in t])
    return weights / weights.sum().real, [R(t_j) for t_j in t], np.linalg.qr(Q[list(Y)].T)[0].T


def test_gpu_matrix():
    r"""M = \operatorname{Re} \sum_j w_j Z_j^Y, \qquad Z_j^Y = Z_j - Z_j \hat q^\top G_j^{-1} \hat q Z_j,
    \qquad G_j = \hat q Z_j \hat q^\top ."""
    Y, k = (0, 4), 4
    weights, nodes, basis = of_gpu(Y, k)
    given = [z - z @ basis.T @ np.linalg.inv(basis @ z @ basis.T) @ basis @ z for z in nodes]
    same(M(Y, k), sum(w_j * z for w_j, z in zip(weights, given)).real)


def test_gpu_form():
    r"""q^\top M q = \operatorname{Re} \sum_j w_j \left[ q^\top Z_j q - (q^\top U_j)\, G_j^{-1}\, (V_j q) \right],"""
    Y, k = (0, 4), 4
    weights, nodes, basis = of_gpu(Y, k)
    for a in set(range(N_ITEMS)) - set(Y):
        q = Q[a]
        form = sum(
            w_j * (q @ z @ q - (q @ (z @ basis.T)) @ np.linalg.inv(basis @ z @ basis.T) @ (basis @ z @ q))
            for w_j, z in zip(weights, nodes)
        ).real
        same(form, chance(holds([a]), holds(Y) & (k == SIZE)))


# -- backgrounds, mixtures, families, tilts, limits ------------------------------------------------------------------------------------

ODDS = np.array([0.5, 0.2, 1.3, 0.0, 0.7, 0.1, 2.0])
ALL = np.diag(ODDS) + L
FULL = minors(ALL)
P_ALONE = ODDS / (1 + ODDS)
THIN = np.diag((1 + ODDS) ** -0.5) @ L @ np.diag((1 + ODDS) ** -0.5)


def test_covariance():
    r"""\sum_{b \ne a} \lvert \mathrm{Cov}(a \in S,\, b \in S) \rvert \le \Pr(a \in S)\,\big(1 - \Pr(a \in S)\big)
    \qquad \text{for every item } a ."""
    for kernel in (L, ALL, np.array([[0.0, 0.1], [-0.1, 0.0]])):
        n = len(kernel)
        sets = [S for k in range(n + 1) for S in combinations(range(n), k)]
        p = minors(kernel, sets) / minors(kernel, sets).sum()
        inside = np.array([[a in S for S in sets] for a in range(n)], float)
        single = inside @ p
        covariance = (inside * p) @ inside.T - np.outer(single, single)
        for a in range(n):
            others = np.delete(np.abs(covariance[a]), a).sum()
            assert others <= single[a] * (1 - single[a]) + 1e-12
        assert covariance.sum() <= 2 * single.sum()
    assert others > 0.99 * single[a] * (1 - single[a])  # of a skew pair; with b = a, the sum would be twice as large


def test_background():
    r"""\det(I + L) = \prod_i (1 + \delta_i)\,\det\!\big(I + W X^\top (I + \Delta)^{-1} X\big), \qquad S = T \cup R ,"""
    same(
        FULL.sum(),
        np.linalg.det(np.eye(N_ITEMS) + ALL),
        np.prod(1 + ODDS) * np.linalg.det(EYE + W @ X.T @ np.diag(1 / (1 + ODDS)) @ X),
    )


def test_union():
    r"""& \Pr(T \cup R = S) = \frac{\det L_S}{\det(I + L)} , \\
    & \Pr(a \in S) = p_a + (1 - p_a)\Pr(a \in T) ."""
    together = minors(THIN) / minors(THIN).sum()
    alone = np.array([np.prod(np.where([a in S for a in range(N_ITEMS)], P_ALONE, 1 - P_ALONE)) for S in SETS])
    found = dict.fromkeys(SETS, 0.0)
    for i, one in enumerate(SETS):
        for j, other in enumerate(SETS):
            found[tuple(sorted({*one, *other}))] += together[i] * alone[j]
    same(FULL / np.linalg.det(np.eye(N_ITEMS) + ALL), [found[S] for S in SETS])
    for a in range(N_ITEMS):
        inside = holds([a])
        same(FULL[inside].sum() / FULL.sum(), P_ALONE[a] + (1 - P_ALONE[a]) * together[inside].sum())


def test_union_sum():
    r"""\Pr(T \cup R = S) &= \sum_{T \subseteq S} \frac{\det A_T}{Z_T} \prod_{i \in T} \frac{1}{1 + \delta_i} \prod_{i \in S
    \setminus T} \frac{\delta_i}{1 + \delta_i} \prod_{i \notin S} \frac{1}{1 + \delta_i} \\
    &= \frac{\sum_{T \subseteq S} \det A_T \prod_{i \in S \setminus T} \delta_i}{Z_T \prod_i (1 + \delta_i)} ,"""
    z, factor = minors(THIN).sum(), 1 / (1 + ODDS)
    for i, S in enumerate(SETS[::9]):
        parts = [T_ for k in range(len(S) + 1) for T_ in combinations(S, k)]
        out = [a for a in range(N_ITEMS) if a not in S]
        rest = [[a for a in S if a not in T_] for T_ in parts]
        first = sum(
            minor(L, T_) / z * factor[list(T_)].prod() * P_ALONE[others].prod() * factor[out].prod()
            for T_, others in zip(parts, rest)
        )
        second = sum(minor(L, T_) * ODDS[others].prod() for T_, others in zip(parts, rest))
        same(FULL[9 * i] / FULL.sum(), first, second / (z * np.prod(1 + ODDS)))


def test_union_given():
    r"""& \Pr(\text{the others are } S \mid J) \propto \det\big(\Delta + X W^J X^\top\big)_S \quad (S \cap J = \emptyset) , \\
    & W^J = W - W X_J^\top L_J^{-1} X_J W ."""
    J = [0, 4]
    inner = W - W @ X[J].T @ np.linalg.inv(ALL[np.ix_(J, J)]) @ X[J] @ W
    kernel = np.diag(ODDS) + X @ inner @ X.T
    others = [S for S in SETS if not set(S) & set(J)]
    right = np.array([FULL[SETS.index(tuple(sorted({*S, *J})))] for S in others])
    found = minors(kernel, others)
    same(right / right.sum(), found / found.sum())


def test_background_sizes():
    r"""\mathbb{E}\, z^{|S|} = \prod_i \big(1 + (z-1)p_i\big)\,\det\!\big(I - M + zH(z)M\big), \qquad
    H(z) = \sum_i \frac{q_i q_i^\top}{1 + (z-1)p_i},"""
    q, t_ = np.linalg.qr(X / np.sqrt(1 + ODDS)[:, None])
    core = t_ @ W @ t_.T
    m = core @ np.linalg.inv(EYE + core)
    for z in TIMES:
        H = sum(np.outer(q[i], q[i]) / (1 + (z - 1) * P_ALONE[i]) for i in range(N_ITEMS))
        same(FULL @ z**SIZE / FULL.sum(), np.prod(1 + (z - 1) * P_ALONE) * np.linalg.det(EYE - m + z * H @ m))


def test_disjoint_proposals():
    r"""\sum_{m=0}^{k} \frac{e_m(XWX^\top)\, e_{k-m}(\delta)}{e_k(L)}"""
    k, alone = 3, np.array([ODDS[list(S)].prod() for S in SETS])
    proposed = accepted = 0.0
    for one, weight in zip(SETS, WEIGHT):
        for other, odds in zip(SETS, alone):
            if len(one) + len(other) == k:
                proposed += weight * odds
                accepted += weight * odds * (not set(one) & set(other))
    found = sum(e(m) * alone[k - m == SIZE].sum() for m in range(k + 1)) / FULL[k == SIZE].sum()
    same(proposed / accepted, found)


def test_given_alone():
    r"""sB'(I + sB')^{-1} = R - R q_J^\top \big(s\,p_J + q_J R q_J^\top\big)^{-1} q_J R"""
    J = [0, 4]
    q, t_ = np.linalg.qr(X / np.sqrt(1 + ODDS)[:, None])
    core, p = t_ @ W @ t_.T, np.diag(P_ALONE[J])
    given = core - core @ q[J].T @ np.linalg.inv(p + q[J] @ core @ q[J].T) @ q[J] @ core
    rows = X / np.sqrt(1 + ODDS)[:, None]  # L given J, without the background, in these coordinates
    inner = W - W @ X[J].T @ np.linalg.inv(ALL[np.ix_(J, J)]) @ X[J] @ W
    same(rows @ inner @ rows.T, q @ given @ q.T)
    for s in (0.1, 0.7, 1.0):
        r = s * core @ np.linalg.inv(EYE + s * core)
        same(
            s * given @ np.linalg.inv(EYE + s * given),
            r - r @ q[J].T @ np.linalg.inv(s * p + q[J] @ r @ q[J].T) @ q[J] @ r,
        )


ITEMS = 5
SUBSETS = [S for k in range(ITEMS + 1) for S in combinations(range(ITEMS), k)]
TIES = 0.6 * RNG.normal(size=(ITEMS, 4))
INNER = np.array([[0.2, 1.5, 0, 0], [-1.5, 0.1, 0, 0], [0, 0, 0.3, -0.9], [0, 0, 0.9, 0.0]])
O = RNG.gamma(1.0, 0.6, size=(3, ITEMS))  # noqa: E741  the odds of the page
SHARE = np.array([0.5, 0.3, 0.2])


def tie(S, inner=INNER):
    return np.linalg.det(np.eye(len(S)) + TIES[list(S)] @ inner @ TIES[list(S)].T)


def component(c, inner=INNER):
    """P_c(S) of all sets, from minors of L_c."""
    root = np.diag(np.sqrt(O[c]))
    weights = minors(root @ (np.eye(ITEMS) + TIES @ inner @ TIES.T) @ root, SUBSETS)
    return weights / weights.sum(), weights.sum()


LAWS = np.array([component(c)[0] for c in range(3)])
TOTALS = np.array([component(c)[1] for c in range(3)])
MIXTURE = SHARE @ LAWS


def test_the_ties_have_complex_eigenvalues():
    assert np.abs(np.linalg.eigvals(TIES @ INNER @ TIES.T).imag).max() > 0.1
    assert min(LAWS.min(), 0) > -1e-12


def test_tied():
    r"""L_c = \mathrm{diag}(\sqrt{o_c})\,(I + XWX^\top)\,\mathrm{diag}(\sqrt{o_c}), \qquad
    P(S) = G(S) \sum_c \frac{w_c}{Z_c} \prod_{i \in S} o_{ci}, \qquad G(S) = \det(I + XWX^\top)_S ."""
    found = [tie(S) * sum(SHARE[c] / TOTALS[c] * O[c, list(S)].prod() for c in range(3)) for S in SUBSETS]
    same(MIXTURE, found)


def parts_of(c, inner=INNER):
    p = O[c] / (1 + O[c])
    A = (TIES * p[:, None]).T @ TIES
    return p, A, inner @ np.linalg.inv(np.eye(4) + A @ inner)


def test_tied_weights():
    r"""& Z_c = \prod_i (1 + o_{ci}) \det(I + WA_c) , \\
    & P_c(J \subseteq S) = \prod_{j \in J} p_{cj} \det\big(I + D^{1/2} X N_c X^\top D^{1/2}\big)_J ,"""
    for c in range(3):
        p, A, N = parts_of(c)
        same(TOTALS[c], np.prod(1 + O[c]) * np.linalg.det(np.eye(4) + INNER @ A))
        rows = np.sqrt(1 - p)[:, None] * TIES
        for J in ((), (2,), (0, 3)):
            minor_of = minor(np.eye(ITEMS) + rows @ N @ rows.T, J)
            same(LAWS[c] @ holds(J, SUBSETS), p[list(J)].prod() * minor_of)


def given_inner(c, J, inner=INNER):
    p, A, N = parts_of(c, inner)
    rows = np.sqrt(1 - p[J])[:, None] * TIES[J]
    return p, A, N, N - N @ rows.T @ np.linalg.inv(np.eye(len(J)) + rows @ N @ rows.T) @ rows @ N


def test_tied_inclusion():
    r"""& P_c(a \in S \mid J \subseteq S) = p_{ca} + p_{ca}(1 - p_{ca})\, x_a^\top N_c^J x_a , \\
    & N_c^J = N_c - N_c R^\top (I + R N_c R^\top)^{-1} R N_c , \quad R = D_J^{1/2}X_J ."""
    for c in range(3):
        for J in ([2], [0, 3]):
            p, _, _, N = given_inner(c, J)
            for a in set(range(ITEMS)) - set(J):
                right = LAWS[c] @ holds([*J, a], SUBSETS) / (LAWS[c] @ holds(J, SUBSETS))
                same(right, p[a] + p[a] * (1 - p[a]) * TIES[a] @ N @ TIES[a])


def test_begun_bound():
    r"""P_c(a \in S \mid J \subseteq S) - P_c(a \in S) = v_{ca}\, x_a^\top (N_c^J - N_c)\, x_a \;\le\; v_{ca}
    \Big( x_a^\top (W^\top A_c W - N_c)\, x_a + \sum_{j \in J} (x_j^\top W x_a)^2 \Big)"""
    inner = (INNER - INNER.T) / 2
    for c in range(3):
        law = component(c, inner)[0]
        for J in ([2], [0, 3]):
            p, A, N, given = given_inner(c, J, inner)
            for a in set(range(ITEMS)) - set(J):
                x, v = TIES[a], p[a] * (1 - p[a])
                change = law @ holds([*J, a], SUBSETS) / (law @ holds(J, SUBSETS)) - law @ holds([a], SUBSETS)
                same(change, v * x @ (given - N) @ x)
                pull = sum((TIES[j] @ inner @ x) ** 2 for j in J)
                assert change <= v * (x @ (inner.T @ A @ inner - N) @ x + pull) + 1e-12


def test_nonempty_law():
    r"""P(S) = \sum_c w_c \frac{P_c(S)}{1 - P_c(\emptyset)}, \qquad 1 - P_c(\emptyset) = 1 - \frac{1}{Z_c}, \qquad
    P(a \in S) = \sum_c w_c \frac{P_c(a \in S)}{1 - P_c(\emptyset)} ,"""
    kept = 1 - LAWS[:, 0]
    same(kept, 1 - 1 / TOTALS)
    found = SHARE / kept @ LAWS
    conditioned = np.array([law[1:] / law[1:].sum() for law in LAWS])
    same(SHARE @ conditioned, found[1:])
    for a in range(ITEMS):
        inside = holds([a], SUBSETS)
        same(found[inside].sum(), sum(SHARE[c] * LAWS[c, inside].sum() / kept[c] for c in range(3)))


FAMILY = [(0, 1), (2,), (3, 4)]
STATES = [0, 0, 1, 2, 2]  # the family of each state
A_STATE = RNG.gamma(1.0, 0.5, size=(2, 5))
ITEM_ODDS = RNG.gamma(1.0, 0.8, size=(5, 5))  # of an item in a state; only those of its own family count


def pattern(c, g, items):
    return sum(A_STATE[c, s] * np.prod([ITEM_ODDS[i, s] for i in items]) for s in range(5) if STATES[s] == g)


def family_odds(c, z=1.0):
    return np.array([
        sum(A_STATE[c, s] * (np.prod([1 + z * ITEM_ODDS[i, s] for i in FAMILY[g]]) - 1) for s in range(5) if STATES[s] == g)
        for g in range(3)
    ])  # fmt: skip


def family_weights(c):
    """G(A) Π Σ a Π r of all sets of items."""
    out = []
    for S in SUBSETS:
        touched = [g for g in range(3) if set(S) & set(FAMILY[g])]
        patterns = [pattern(c, g, [i for i in FAMILY[g] if i in S]) for g in touched]
        out.append(tie(touched) * np.prod(patterns))
    return np.array(out)


def test_family_law():
    r"""P_c(S) = \frac{G(A)}{Z_c} \prod_{g \in A} \sum_{s \text{ of } g} a_{cs} \prod_{i \in S_g} r_{is}, \qquad
    o_{cg} = \sum_{s \text{ of } g} a_{cs} \Big(\prod_{i \in g} (1 + r_{is}) - 1\Big)."""
    item_odds = [[ITEM_ODDS[i, s] for s in range(5) if STATES[s] == g] for g in range(3) for i in FAMILY[g]]
    table = np.zeros((5, 2))
    for i, own in enumerate(item_odds):
        table[i, : len(own)] = own
    law = ndpp.FamilyMixture(A_STATE, table, [0, 0, 1, 2, 2], STATES, TIES[:3], INNER, [0.6, 0.4])
    expected = sum(share * family_weights(c) / family_weights(c).sum() for c, share in enumerate((0.6, 0.4)))
    same(expected, np.exp([law.log_prob(S) for S in SUBSETS]))
    for c in range(2):  # the families touched have odds o, and the same Z
        touched = [S for k in range(4) for S in combinations(range(3), k)]
        same(family_weights(c).sum(), sum(tie(A) * family_odds(c)[list(A)].prod() for A in touched))


def test_family_odds():
    r"""\sum_{\emptyset \ne S_g \subseteq g} \sum_{s \text{ of } g} a_{cs} \prod_{i \in S_g} r_{is}
    = \sum_{s \text{ of } g} a_{cs}\Big(\prod_{i \in g}(1 + r_{is}) - 1\Big) = o_{cg} ,"""
    for c in range(2):
        for g in range(3):
            sets = [S for k in range(1, len(FAMILY[g]) + 1) for S in combinations(FAMILY[g], k)]
            same(sum(pattern(c, g, S) for S in sets), family_odds(c)[g])


def test_family_sizes():
    r"""& \mathbb{E}_c\, z^{|S|} = \frac{Z_c(z)}{Z_c(1)} , \\
    & Z_c(z) = \prod_g \big(1 + o_{cg}(z)\big) \det\Big(I + W \sum_g \frac{o_{cg}(z)}{1 + o_{cg}(z)}\, x_g x_g^\top\Big) ."""

    def total(c, z):
        o = family_odds(c, z)
        return np.prod(1 + o) * np.linalg.det(np.eye(4) + INNER @ (TIES[:3].T * (o / (1 + o))) @ TIES[:3])

    sizes = np.array([len(S) for S in SUBSETS])
    for c in range(2):
        weights = family_weights(c)
        for z in TIMES:
            same(weights @ z**sizes / weights.sum(), total(c, z) / total(c, 1.0))


FACTORS = np.array([2.0, 0.0, 0.5, 1.0, 3.0])


def tilted_total(c, factors):
    o = O[c] * factors
    return np.prod(1 + o) * np.linalg.det(np.eye(4) + INNER @ (TIES.T * (o / (1 + o))) @ TIES)


def test_tilted_mixture():
    r"""& P_s(S) = \sum_c w_c(s)\, P_{c,s}(S) , \qquad w_c(s) \propto w_c \frac{Z_c(s)}{Z_c} , \\
    & P_{c,s}(S) = \frac{1}{Z_c(s)/Z_c}\, P_c(S) \prod_{i \in S} s_i ,"""
    product = np.array([FACTORS[list(S)].prod() for S in SUBSETS])
    change = np.array([tilted_total(c, FACTORS) / TOTALS[c] for c in range(3)])
    weights = SHARE * change / (SHARE @ change)
    found = sum(weights[c] / change[c] * LAWS[c] * product for c in range(3))
    same(MIXTURE * product / (MIXTURE @ product), found)
    law = ndpp.Mixture.tied(O, TIES, INNER, SHARE).tilt(FACTORS)
    possible = [i for i, S in enumerate(SUBSETS) if product[i] > 0]
    same(found[possible], np.exp([law.log_prob(SUBSETS[i]) for i in possible]))
    same(law.weights, weights)


def test_total_law():
    r"""\mathbb{E}_c\, z^{c(S)} = \frac{Z_c(z^{v})}{Z_c} ,"""
    v = np.array([3, 1, 0, 2, 1])
    totals = np.array([v[list(S)].sum() for S in SUBSETS])
    for c in range(3):
        for z in TIMES:
            same(LAWS[c] @ z**totals, tilted_total(c, z**v) / TOTALS[c])


VALUES = np.array([[1.0, 1, 0, 0, 0], [2.5, 0.3, 1.2, 3.1, 0.7]])  # a count and a total
LOW, HIGH = np.array([1.0, -np.inf]), np.array([1.0, 4.0])
THETA = np.array([[0.7, -0.3], [-0.4, 0.0], [0.0, -0.9]])


def limited():
    """Σ_j c_j, the sets that keep the limits, A_c and the acceptance probabilities of all sets."""
    totals = np.array([VALUES[:, list(S)].sum(axis=1) for S in SUBSETS])
    kept = ((totals >= LOW) & (totals <= HIGH)).all(axis=1)
    bound = np.where(THETA > 0, LOW, np.where(THETA < 0, HIGH, 0.0))
    change = np.array([tilted_total(c, np.exp(THETA[c] @ VALUES)) / TOTALS[c] for c in range(3)])
    A = change * np.exp(-(THETA * bound).sum(axis=1))
    accept = kept * np.exp(-(THETA @ totals.T - (THETA * bound).sum(axis=1)[:, None]))
    return totals, kept, change, A, accept


def test_limit_accepted():
    r"""& \frac{w_cA_c}{\sum_b w_bA_b} \cdot \frac{P_c(S)\,e^{\theta_c \cdot c(S)}}{Z_c(e^{\theta_c \cdot c})/Z_c}
    \cdot e^{-\theta_c \cdot (c(S) - b)} \\
    & \qquad = \frac{w_c P_c(S)}{\sum_b w_bA_b} , \qquad S \in E ,"""
    totals, kept, change, A, accept = limited()
    for c in range(3):
        proposed = LAWS[c] * np.exp(totals @ THETA[c]) / change[c]
        same(proposed.sum(), 1.0)
        left = SHARE[c] * A[c] / (SHARE @ A) * proposed * accept[c]
        same(left[kept], SHARE[c] * LAWS[c, kept] / (SHARE @ A))


def test_limit_weight():
    r"""& A_c = \frac{Z_c(e^{\theta_c \cdot c})}{Z_c}\, e^{-\theta_c \cdot b} \;\ge\; P_c(E) , \\
    & \Pr(\text{accepted}) = \frac{P(E)}{\sum_c w_c A_c} ."""
    totals, kept, change, A, accept = limited()
    assert 0.01 < MIXTURE[kept].sum() < 0.5
    assert accept.max() <= 1 + 1e-12
    assert (LAWS[:, kept].sum(axis=1) <= A).all()
    rate = sum(
        SHARE[c] * A[c] / (SHARE @ A) * (LAWS[c] * np.exp(totals @ THETA[c]) / change[c]) @ accept[c] for c in range(3)
    )
    same(rate, MIXTURE[kept].sum() / (SHARE @ A))


def test_lift_factors():
    r"""\frac{P(a, b)}{P(a)P(b)} = \frac{E(a, b)}{P(a)P(b)} \cdot \frac{P(a, b)}{E(a, b)} ,"""
    a, b = 0, 3
    inside = [holds(items, SUBSETS) for items in ([a], [b], [a, b])]
    first, second, both = (MIXTURE @ one for one in inside)
    expected = sum(SHARE[c] * (LAWS[c] @ inside[0]) * (LAWS[c] @ inside[1]) for c in range(3))
    law = ndpp.Mixture.tied(O, TIES, INNER, SHARE)
    same(both / (first * second), expected / (first * second) * both / expected)
    same(both, law.inclusion_probabilities(given=[a])[b] * law.inclusion_probabilities()[a])
    same(both - expected, law.mean_covariances(np.array([a]), np.array([b]))[0, 0])


def test_reasons():
    r"""\frac{P(J \cup a)}{P(J)} = \underbrace{o(a)}_{\text{popularity}} \cdot \underbrace{\sum_c P(c \mid J)\,
    \frac{o_c(a)}{o(a)}}_{\text{mission}} \cdot \text{tie} ,"""
    J, a, nothing = (1, 4), 2, 0 * INNER  # tie is what is left; without ties it is one
    laws = np.array([component(c, nothing)[0] for c in range(3)])
    mixture = SHARE @ laws
    p = mixture @ holds([a], SUBSETS)
    popularity = p / (1 - p)
    at, larger = SUBSETS.index(J), SUBSETS.index(tuple(sorted((*J, a))))
    posterior = SHARE * laws[:, at] / mixture[at]
    own = laws @ holds([a], SUBSETS)
    mission = posterior @ (own / (1 - own) / popularity)
    same(mixture[larger] / mixture[at], popularity * mission)


# -- kernels given by a function -------------------------------------------------------------------------------------------------------


class Points:
    """L = VVᵀ of three points, a poor C, and what is drawn of it; Z is det(I + A), or e_k."""

    rng = np.random.default_rng(5)
    V = rng.normal(size=(3, 3))
    L = V @ V.T
    C = np.diag([2.0, 1.0, 0.5]) + 0.1
    subsets = tuple(S for j in range(4) for S in combinations(range(3), j))

    def __init__(self, size):
        self.size, step = size, 1e-5
        units = [np.outer(a, b) for a in np.eye(3) for b in np.eye(3)]
        slopes = [(self.log_z(self.C + step * U) - self.log_z(self.C - step * U)) / (2 * step) for U in units]
        self.G = np.reshape(slopes, (3, 3))
        self.G = (self.G + self.G.T) / 2
        self.l = np.einsum("ij,jk,ik->i", self.V, self.G, self.V)
        self.s, self.rho = self.l.sum(), 2.0 * self.l.sum()
        self.p = self.l / self.s

    def log_z(self, A):
        if self.size is None:
            return np.log(np.linalg.det(np.eye(len(A)) + A))
        total = sum(minor(A, S) for S in combinations(range(len(A)), self.size))
        return np.log(total) if total > 1e-12 else -np.inf

    def tilde(self, sigma):
        sigma = list(sigma)
        return self.L[np.ix_(sigma, sigma)] / (self.rho * np.sqrt(np.outer(self.p[sigma], self.p[sigma])))

    def beta(self, tilde, t):
        trace = np.trace(self.G @ self.C)
        return np.exp(self.log_z(tilde) - self.log_z(self.C) + trace - t * self.s / self.rho)


POINTS = [Points(None), Points(2)]


def test_function_tangent():
    r"""G = \nabla \log Z(C), \qquad l_i = v_i^\top G v_i, \qquad s = \sum_i l_i, \qquad p_i = \frac{l_i}{s} ."""
    same(POINTS[0].G, np.linalg.inv(np.eye(3) + POINTS[0].C), tolerance=1e-6)
    C = POINTS[1].C
    same(POINTS[1].G, (np.trace(C) * np.eye(3) - C) / np.exp(POINTS[1].log_z(C)), tolerance=1e-6)  # of log e_2
    for points in POINTS:
        assert points.l.min() > 0
        same(points.s, np.trace(points.G @ points.V.T @ points.V))


def test_function_chance():
    r"""\beta(\sigma) = \frac{Z(\tilde L)}{Z(C)}\, \exp\!\Big(\!\operatorname{tr}(GC) - \frac{ts}{\rho}\Big) ;"""
    rng = np.random.default_rng(0)
    for points in POINTS:
        drawn = [points.beta(points.tilde(rng.choice(3, size=t, p=points.p)), t) for t in rng.integers(2, 14, size=200)]
        assert 0.2 < max(drawn) <= 1 + 1e-6


def chance_of_sets(points, most):
    """P(accepted, S) for every S, by all numbers of points, up to ``most`` of them, as weights of the counts of each point."""
    rate, found = points.rho * np.exp(points.s / points.rho), dict.fromkeys(points.subsets, 0.0)
    for counts in product(range(most), repeat=3):
        times = np.array(counts)  # independent Poisson variables
        weight = np.prod([np.exp(-rate * p) * (rate * p) ** c / factorial(c) for p, c in zip(points.p, counts)])
        scale = np.sqrt(times / (points.rho * points.p))
        merged = points.L * np.outer(scale, scale)
        beta = points.beta(merged, times.sum())  # the nonzero eigenvalues are those of L̃
        sets = [S for S in points.subsets if points.size in (None, len(S))]
        shares = np.array([minor(merged, S) if S else 1.0 for S in sets])
        for S, share in zip(sets, shares / max(shares.sum(), 1e-300)):
            found[S] += weight * beta * share
    return found


def test_function_accepted():
    r"""\Pr(\text{accepted}) = \frac{Z(L)}{Z(C)} \exp\!\Big(\!\operatorname{tr}(GC) - \rho\big(e^{s/\rho} - 1\big)\Big) ."""
    for points in POINTS:
        points.rho = 0.7 * points.s
        found, total = chance_of_sets(points, 13), 0.0
        trace, rest = np.trace(points.G @ points.C), points.rho * (np.exp(points.s / points.rho) - 1)
        factor = np.exp(trace - rest - points.log_z(points.C))
        for S, value in found.items():
            expected = (minor(points.L, S) if S else 1.0) if points.size in (None, len(S)) else 0.0
            same(value, factor * expected, tolerance=1e-3)
            total += value
        same(total, factor * np.exp(points.log_z(points.L)), tolerance=1e-3)


def test_function_places():
    r"""\sum_{t \ge j} e^{-\rho e^{s/\rho}} \frac{(\rho e^{s/\rho})^t}{t!}\, e^{-ts/\rho}\, \frac{t!}{(t-j)!}\, \rho^{-j}
    = \exp\!\big(\rho - \rho e^{s/\rho}\big),"""
    for s, rho, j in ((2.0, 3.0, 0), (2.0, 3.0, 4), (1.0, 0.7, 2)):
        rate = rho * np.exp(s / rho)
        terms = [
            np.exp(-rate - t * s / rho) * rate**t / factorial(t) * factorial(t) / factorial(t - j) * rho**-j
            for t in range(j, 90)
        ]
        same(sum(terms), np.exp(rho - rate))


# -- the pages -------------------------------------------------------------------------------------------------------------------------


def displays(page: str) -> list[tuple[str, str]]:
    """The displays of a page: their labels, and what they show, without spaces."""
    found = DISPLAY.findall((DOCS / f"{page}.md").read_text(encoding="utf-8"))
    return [(label, "".join(tex.split())) for tex, label in found]


def quoted_by_tests() -> dict[str, str]:
    """What the tests of formulas quote, by label."""
    quoted = {
        name.removeprefix("test_").replace("_", "-"): "".join(value.__doc__.split())
        for name, value in globals().items()
        if name.startswith("test_") and value.__doc__
    }
    labels = {label for page in PAGES for label, _ in displays(page)}
    return {label: text for label, text in quoted.items() if label in labels}


def listing() -> str:
    """The list of formulas in docs/theory.md."""
    lines = []
    for page in PAGES:
        labels = [f"`{label}`" for label, _ in displays(page) if label not in DEFINITIONS]
        if labels:
            lines.append(f"- {{doc}}`{page}`: {', '.join(labels)}.")
    defined = ", ".join(f"`{label}`" for label in DEFINITIONS)
    return "\n".join(["", *lines, "", f"Definitions, which need no test: {defined}.", "", ""])


@pytest.mark.parametrize("page", PAGES)
def test_every_display_has_a_label_and_a_test_that_quotes_it(page: str):
    quoted = quoted_by_tests()
    for label, tex in displays(page):
        assert label, f"{page}.md: the display {tex[:60]} needs a label"
        if label not in DEFINITIONS:
            assert label in quoted, f"{page}.md: no test_{label.replace('-', '_')}"
            assert quoted[label] == tex, f"{page}.md and its test show different formulas for {label}"


def test_the_list_of_formulas_is_that_of_the_pages():
    page = (DOCS / "theory.md").read_text(encoding="utf-8")
    assert LIST.sub(lambda found: found[1] + listing() + found[2], page) == page
    assert LIST.search(page)
    labels = [label for name in PAGES for label, _ in displays(name)]
    assert len(labels) == len(set(labels))
    assert set(DEFINITIONS) <= set(labels)


if __name__ == "__main__":
    path = DOCS / "theory.md"
    text = path.read_text(encoding="utf-8")
    path.write_text(LIST.sub(lambda found: found[1] + listing() + found[2], text), encoding="utf-8")
