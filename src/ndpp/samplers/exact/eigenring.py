"""A circle in eigencoordinates: diagonal resolvents minus one dyad per item and node, and the forms of M.

At node t_j of a circle, R is diagonal in eigencoordinates, F_j, and Z_j is F_j minus one dyad per item,

    Z_j = F_j − Σ_i ζ_ji η_jiᵀ,        ζ = Z r_a,    η = l_a Z / π,    π = l_a Z r_a,    w ← wπ

when item a is added, with its sides l_a and r_a (:mod:`.rows`). Adding an item to m others costs O(N m r), where :mod:`.nodes` updates
matrices in O(N r²). M = Re Σ w_j Z_j is never formed: the form q_aᵀMq_a of a block of candidates is that of the diagonal Re Σ w_j F_j minus
Re Σ_ji w_j (l_a ζ_ji)(η_ji r_a), two real matrix products for all nodes together, O(N m r) per candidate.

A new circle for m items costs O(N m² r): ζ = F_j r_Y and η = G_j⁻¹ l_Y F_j with G_j = l_Y F_j r_Yᵀ. As fewer items are missing, fewer nodes
suffice, so :func:`_is_worth` compares this cost with what fewer nodes save.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ndpp._compiled import njit, write
from ndpp._types import ComplexArray, FloatArray, IntArray
from ndpp.samplers.exact.nodes import RETIRED, retire
from ndpp.samplers.exact.plan import RUNG_STEP, Targets, Tolerances, plan_next, unbiased_count
from ndpp.samplers.exact.rows import LEFT, RIGHT, apply, write_resolvent

TARGETS = Targets(1e-11, 1e-4)
"""For a new circle. These circles are left as soon as others pay, so they need less margin than those of :mod:`.nodes`."""
LIFETIME = 0.25
"""Part of the missing items, but at least one item, for which a new circle is assumed to serve."""
PLAN_COST, EIGENVALUE_COST, INVERSE_COST = 2e5, 200.0, 4.0
"""In operations of a matrix product: planning a circle, computing F for one node and eigenvalue, and one operation of an inverse."""
_FAST = {"contract", "reassoc"}


class Ring(NamedTuple):
    """A circle: its rung, the number K of eigenvalues, F (L, 2, D), tr Z (L,), ζ and η (2Lm, D) for L live nodes, log w (N/2,), live nodes.

    Row 2(iL + j) of ζ and η is the real part of dyad i at node j, the next one its imaginary part.
    """

    rung: int
    K: int
    F: FloatArray
    trace: ComplexArray
    zeta: FloatArray
    eta: FloatArray
    log_w: ComplexArray
    live: IntArray


class Weights(NamedTuple):
    """w (L,) with real parts that sum to one, Re Σ w_j F_j, tr M, and the surviving fraction."""

    w: ComplexArray
    diagonal: FloatArray
    trace: float
    fraction: float


class RingRequest(NamedTuple):
    """What all samples have in common: power of t, number of items to draw, targets of circles, tolerances."""

    power: int
    wanted: int
    targets: Targets
    tolerances: Tolerances


@njit(fastmath=_FAST, error_model="numpy")
def forms_of(
    ring: Ring, weights: Weights, m: int, left: FloatArray, right: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return l M r for each of several items, their l ζ, and their η r."""
    L, K, diagonal, w = ring.live.size, ring.K, weights.diagonal, weights.w
    forms, (n, D) = np.empty(len(left)), left.shape
    u, x = np.dot(left, ring.zeta[: 2 * L * m].T), np.dot(right, ring.eta[: 2 * L * m].T)
    for c in range(n):
        form = 0.0
        for k in range(D - K):
            a, b, s, t = left[c, k], left[c, K + k], right[c, k], right[c, K + k]
            form += diagonal[k] * (a * s + b * t) + diagonal[K + k] * (a * t - b * s)
        for k in range(D - K, K):
            form += diagonal[k] * left[c, k] * right[c, k]
        for i in range(m):
            for j in range(L):
                at = 2 * (i * L + j)
                a, b, s, t = u[c, at], u[c, at + 1], x[c, at], x[c, at + 1]
                form -= w[j].real * (a * s - b * t) - w[j].imag * (a * t + b * s)
        forms[c] = form
    return forms, u, x


@njit(error_model="numpy")
def weigh(ring: Ring) -> Weights:
    """Return what the log weights say of M."""
    L, D = ring.live.size, ring.F.shape[2]
    w, diagonal = np.empty(L, np.complex128), np.zeros(D)
    peak, moduli, trace = ring.log_w.real.max(), 0.0, 0.0
    for j in range(L):
        w[j] = np.exp(ring.log_w[ring.live[j]] - peak)
        moduli += abs(w[j])
    total = w.real.sum()
    for j in range(L):
        w[j] /= total
        trace += (w[j] * ring.trace[j]).real
        for k in range(D):
            diagonal[k] += w[j].real * ring.F[j, 0, k] - w[j].imag * ring.F[j, 1, k]
    return Weights(w, diagonal, trace, total / moduli)


@njit(error_model="numpy")
def advance(
    values: ComplexArray,
    request: RingRequest,
    ring: Ring,
    left: FloatArray,
    right: FloatArray,
    u: FloatArray,
    x: FloatArray,
    done: int,
) -> tuple[Ring, Weights, bool, int]:
    """Return the circle and its weights given the last of the items with these sides, whether they are good, and 1 if it is a new one."""
    m, D, missing = len(left), left.shape[1], request.wanted - done
    _add(ring, m - 1, left[m - 1], right[m - 1], u, x)
    safe = retire(ring.log_w, ring.log_w, ring.log_w.real.max())
    ring = _compact(ring, m)
    weights = weigh(ring)
    good = safe and _accepts(weights, missing, request.tolerances)
    steps, count = 0, 0
    if not good or _is_worth(ring.live.size, 2, m, D, missing):
        steps, count = plan_next(ring.log_w, missing, request.targets)
    if count == 0 or (good and not _is_worth(ring.live.size, count // 2, m, D, missing)):
        return ring, weights, good, 0
    new, its_weights, is_good = begin(values, request, ring.rung + steps, count, left, right, missing)
    return (new, its_weights, True, 1) if is_good else (ring, weights, good, 1)


@njit()
def _is_worth(n_live: int, n_new: int, m: int, D: int, missing: int) -> bool:
    """Return whether another circle with fewer nodes saves more than it costs.

    A node costs 8mD operations per candidate, and an item takes D/missing candidates.
    """
    saved = (n_live - n_new) * 8.0 * m * D * D * max(1.0 / missing, LIFETIME)
    return saved > PLAN_COST + n_new * (8.0 * m * m * (INVERSE_COST * m + D) + EIGENVALUE_COST * D)


@njit()
def _accepts(weights: Weights, missing: int, tolerances: Tolerances) -> bool:
    return abs(weights.trace - missing) <= tolerances.trace and weights.fraction >= tolerances.fraction


@njit(error_model="numpy")
def begin(
    values: ComplexArray,
    request: RingRequest,
    rung: int,
    count: int,
    left: FloatArray,
    right: FloatArray,
    missing: int,
) -> tuple[Ring, Weights, bool]:
    """Open a circle for these items and the missing ones, with more nodes until the monitors pass or the rule is unbiased."""
    while True:
        ring = open_ring(values, rung, count, request.power, left, right, len(left) + missing)
        weights = weigh(ring)
        good = _accepts(weights, missing, request.tolerances)
        if good or count > left.shape[1]:
            return ring, weights, good
        count = min(2 * count, unbiased_count(left.shape[1]))


@njit(error_model="numpy")
def open_ring(
    values: ComplexArray, rung: int, count: int, power: int, left: FloatArray, right: FloatArray, space: int
) -> Ring:
    """Return a circle for these items, with space for the dyads of as many as ``space``."""
    (m, D), K, h = left.shape, values.size, count // 2
    F, trace, log_w = np.zeros((h, 2, D)), np.zeros(h, np.complex128), np.empty(h, np.complex128)
    zeta, eta = np.empty((2 * h * space, D)), np.empty((2 * h * space, D))
    for j in range(h):
        log_t = complex(rung * RUNG_STEP, math.pi * (j + 0.5) / h)
        log_w[j] = write_resolvent(values, np.exp(log_t), F[j]) - power * log_t
        trace[j] = 2 * complex(F[j, 0, : D - K].sum(), F[j, 1, : D - K].sum())
        trace[j] += complex(F[j, 0, D - K : K].sum(), F[j, 1, D - K : K].sum())
        for i in range(m):
            for part in range(2):
                apply(F[j, part], K, RIGHT, right[i], zeta[2 * (i * h + j) + part])
    inverse = np.empty((h, m, m), np.complex128)
    if m:
        G = np.dot(left, zeta[: 2 * h * m].T)
        for j in range(h):
            node = G[:, 2 * j :: 2 * h] + 1j * G[:, 2 * j + 1 :: 2 * h]
            try:
                write(np.linalg.inv(node), inverse[j])
                sign, log_abs = np.linalg.slogdet(node)
                log_w[j] += np.log(sign) + log_abs
            except Exception:  # a singular node shows in the monitors; compiled code cannot name the error
                inverse[j] = np.nan
    retire(log_w, log_w, log_w.real.max())
    ring = _compact(Ring(rung, K, F, trace, zeta, eta, log_w, np.arange(h)), m)
    if m:
        _fill_eta(ring, inverse, left)
    return ring


@njit(error_model="numpy")
def _fill_eta(ring: Ring, inverse: ComplexArray, left: FloatArray) -> None:
    """Write η = G⁻¹ l F of the live nodes, and subtract their dyads from the traces."""
    (m, D), L, K = left.shape, ring.live.size, ring.K
    parts, row = np.empty((2, m, D)), np.empty(D)
    for j in range(L):
        node = inverse[ring.live[j]]
        np.dot(np.ascontiguousarray(node.real), left, parts[0])
        np.dot(np.ascontiguousarray(node.imag), left, parts[1])
        for i in range(m):
            at = 2 * (i * L + j)
            apply(ring.F[j, 0], K, LEFT, parts[0, i], ring.eta[at])
            apply(ring.F[j, 1], K, LEFT, parts[1, i], row)
            np.subtract(ring.eta[at], row, ring.eta[at])
            apply(ring.F[j, 0], K, LEFT, parts[1, i], ring.eta[at + 1])
            apply(ring.F[j, 1], K, LEFT, parts[0, i], row)
            np.add(ring.eta[at + 1], row, ring.eta[at + 1])
            ring.trace[j] -= _product(ring.zeta[at], ring.zeta[at + 1], ring.eta[at], ring.eta[at + 1])


@njit(error_model="numpy")
def with_space(ring: Ring, m: int, space: int) -> Ring:
    """Return a copy that has the dyads of m items, with space for more."""
    n, rows, D = 2 * ring.live.size * space, 2 * ring.live.size * m, ring.zeta.shape[1]
    zeta, eta = np.empty((n, D)), np.empty((n, D))
    write(ring.zeta[:rows], zeta[:rows])
    write(ring.eta[:rows], eta[:rows])
    return Ring(ring.rung, ring.K, ring.F.copy(), ring.trace.copy(), zeta, eta, ring.log_w.copy(), ring.live.copy())


@njit(error_model="numpy")
def _compact(ring: Ring, m: int) -> Ring:
    """Return the circle without the nodes that have been retired, over the same memory."""
    L, live = 0, ring.live.size
    kept = np.empty(live, np.int64)
    for j in range(live):
        if ring.log_w[ring.live[j]].real != RETIRED:
            kept[L] = j
            L += 1
    if live == L:
        return ring
    for j in range(L):
        write(ring.F[kept[j]], ring.F[j])
        ring.trace[j], ring.live[j] = ring.trace[kept[j]], ring.live[kept[j]]
    for i in range(m):
        for j in range(L):
            for part in range(2):
                to, source = 2 * (i * L + j) + part, 2 * (i * live + kept[j]) + part
                write(ring.zeta[source], ring.zeta[to])
                write(ring.eta[source], ring.eta[to])
    return Ring(ring.rung, ring.K, ring.F[:L], ring.trace[:L], ring.zeta, ring.eta, ring.log_w, ring.live[:L])


@njit(fastmath=_FAST, error_model="numpy")
def _add(ring: Ring, m: int, left: FloatArray, right: FloatArray, u: FloatArray, x: FloatArray) -> None:
    """Write dyad m, of the item with these sides, l ζ and η r, and update weights and traces."""
    L, K, D = ring.live.size, ring.K, left.size
    row = np.empty((2, D))
    for j in range(L):
        at = 2 * (m * L + j)
        z_re, z_im, e_re, e_im = ring.zeta[at], ring.zeta[at + 1], row[0], row[1]
        apply(ring.F[j, 0], K, RIGHT, right, z_re)
        apply(ring.F[j, 1], K, RIGHT, right, z_im)
        apply(ring.F[j, 0], K, LEFT, left, e_re)
        apply(ring.F[j, 1], K, LEFT, left, e_im)
        for i in range(m):
            old = 2 * (i * L + j)
            a, b, c, d = u[old], u[old + 1], x[old], x[old + 1]
            zeta_re, zeta_im, eta_re, eta_im = ring.zeta[old], ring.zeta[old + 1], ring.eta[old], ring.eta[old + 1]
            for k in range(D):
                z_re[k] -= c * zeta_re[k] - d * zeta_im[k]
                z_im[k] -= c * zeta_im[k] + d * zeta_re[k]
                e_re[k] -= a * eta_re[k] - b * eta_im[k]
                e_im[k] -= a * eta_im[k] + b * eta_re[k]
        pivot = complex(np.dot(left, z_re), np.dot(left, z_im))
        size = abs(pivot)
        inverse = 1 / pivot if size > 0 else 0j  # a pivot of zero shows in the monitors
        for k in range(D):
            ring.eta[at, k] = inverse.real * e_re[k] - inverse.imag * e_im[k]
            ring.eta[at + 1, k] = inverse.real * e_im[k] + inverse.imag * e_re[k]
        ring.trace[j] -= _product(z_re, z_im, ring.eta[at], ring.eta[at + 1])
        ring.log_w[ring.live[j]] += np.log(pivot) if size > 0 else complex(-np.inf, 0.0)


@njit(fastmath=_FAST)
def _product(a_re: FloatArray, a_im: FloatArray, b_re: FloatArray, b_im: FloatArray) -> complex:
    """Return Σ ab of complex vectors."""
    re, im = 0.0, 0.0
    for k in range(a_re.size):
        re += a_re[k] * b_re[k] - a_im[k] * b_im[k]
        im += a_re[k] * b_im[k] + a_im[k] * b_re[k]
    return complex(re, im)
