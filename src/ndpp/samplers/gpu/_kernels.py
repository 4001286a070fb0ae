"""Triton kernels of the exact engine. Each has a plain twin in :mod:`ndpp.samplers.gpu._fused`, which says what it computes."""

# Triton reads annotations itself: `tl.constexpr` must not become a string here.
# mypy: ignore-errors
import triton
import triton.language as tl


@triton.jit
def _philox(a, b, c, d, k0, k1):
    for _ in tl.static_range(10):
        p, q = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (
            ((q >> 32) & 0xFFFFFFFF) ^ b ^ k0,
            q & 0xFFFFFFFF,
            ((p >> 32) & 0xFFFFFFFF) ^ d ^ k1,
            p & 0xFFFFFFFF,
        )
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return a, b, c, d


@triton.jit
def _unit(high, low):
    return ((high >> 5) * 67108864 + (low >> 6)).to(tl.float64) * 1.1102230246251565e-16


@triton.jit(do_not_specialize=["total", "n", "count", "key_low", "key_high", "where"])
def propose(
    threshold, alias, leverage, samples, rows, bars, total, n, count, key_low, key_high, where, BLOCK: tl.constexpr
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here, zero = at < total, at * 0
    sample = tl.load(samples + at // count, mask=here, other=0)
    place, low, high = 2 * (at % count), sample & 0xFFFFFFFF, (sample >> 32) & 0xFFFFFFFF
    w0, w1, w2, w3 = _philox(place, zero + where, low, high, zero + key_low, zero + key_high)
    w4, w5, _, _ = _philox(place + 1, zero + where, low, high, zero + key_low, zero + key_high)
    cell = (_unit(w0, w1) * (zero + n).to(tl.float64)).to(tl.int64)
    keep = _unit(w2, w3) < tl.load(threshold + cell, mask=here, other=0.0)
    row = tl.where(keep, cell, tl.load(alias + cell, mask=here, other=0))
    tl.store(rows + at, row, mask=here)
    tl.store(bars + at, _unit(w4, w5) * tl.load(leverage + row, mask=here, other=0.0), mask=here)


@triton.jit(do_not_specialize=["count", "width"])
def weighed_rows(table, rows, weights, out, count, width, C: tl.constexpr, W: tl.constexpr):
    s, c = tl.program_id(0).to(tl.int64), tl.program_id(1) * C + tl.arange(0, C)
    j = tl.arange(0, W)
    row = tl.load(rows + s * count + c, mask=c < count, other=0)
    weight = tl.load(weights + s * width + j, mask=j < width, other=0.0)
    value = tl.load(
        table + row[:, None] * width + j[None, :], mask=(c < count)[:, None] & (j < width)[None, :], other=0.0
    )
    tl.store(out + s * count + c, tl.sum(value * weight[None, :], 1), mask=c < count)


@triton.jit(do_not_specialize=["n", "half", "count", "room"])
def judge_small(P, inverse, w, own, out, n, half, count, room, N: tl.constexpr, C: tl.constexpr):
    s, c = tl.program_id(0).to(tl.int64), tl.program_id(1) * C + tl.arange(0, C)
    i, step = tl.arange(0, N), half * 4 * count
    total = tl.zeros((C,), P.dtype.element_ty)
    for j in range(half):
        g, at = inverse + (s * half + j) * 2 * room * room, P + s * n * step + j * 4 * count
        y, inside = at + i[:, None] * step + 2 * count + c[None, :], (i < n)[:, None] & (c < count)[None, :]
        y_re, y_im = tl.load(y, mask=inside, other=0.0), tl.load(y + count, mask=inside, other=0.0)
        w_re, w_im = tl.load(w + 2 * (s * half + j)), tl.load(w + 2 * (s * half + j) + 1)
        for k in tl.range(0, n, loop_unroll_factor=4):
            g_re = tl.load(g + k * room + i, mask=i < n, other=0.0)[:, None]
            g_im = tl.load(g + room * room + k * room + i, mask=i < n, other=0.0)[:, None]
            x_re = tl.load(at + k * step + c, mask=c < count, other=0.0)
            x_im = tl.load(at + k * step + count + c, mask=c < count, other=0.0)
            re, im = tl.sum(g_re * y_re - g_im * y_im, 0), tl.sum(g_re * y_im + g_im * y_re, 0)
            total += (w_re * x_re - w_im * x_im) * re - (w_re * x_im + w_im * x_re) * im
    value = tl.load(own + s * count + c, mask=c < count, other=0.0) - total
    tl.store(out + s * count + c, value, mask=c < count)


@triton.jit(do_not_specialize=["n", "half", "count", "room"])
def judge(P, inverse, w, own, out, n, half, count, room, N: tl.constexpr, C: tl.constexpr):
    s, c = tl.program_id(0).to(tl.int64), tl.program_id(1) * C + tl.arange(0, C)
    k, step = tl.arange(0, N), half * 4 * count
    real: tl.constexpr = P.dtype.element_ty
    total = tl.zeros((C,), real)
    for j in range(half):
        g, at = inverse + (s * half + j) * 2 * room * room, P + s * n * step + j * 4 * count
        w_re, w_im = tl.load(w + 2 * (s * half + j)), tl.load(w + 2 * (s * half + j) + 1)
        for first in range(0, n, N):
            i = first + k
            both, re, im = tl.zeros((N, C), real), tl.zeros((N, C), real), tl.zeros((N, C), real)
            for begin in range(0, n, N):
                m = begin + k
                place, inside = i[:, None] * room + m[None, :], (i < n)[:, None] & (m < n)[None, :]
                g_re = tl.load(g + place, mask=inside, other=0.0)
                g_im = tl.load(g + room * room + place, mask=inside, other=0.0)
                place, inside = m[:, None] * step + c[None, :], (m < n)[:, None] & (c < count)[None, :]
                y_re = tl.load(at + 2 * count + place, mask=inside, other=0.0)
                y_im = tl.load(at + 3 * count + place, mask=inside, other=0.0)
                re = tl.dot(g_re, y_re, re, input_precision="ieee", out_dtype=real)
                both = tl.dot(g_im, y_im, both, input_precision="ieee", out_dtype=real)
                im = tl.dot(g_re, y_im, im, input_precision="ieee", out_dtype=real)
                im = tl.dot(g_im, y_re, im, input_precision="ieee", out_dtype=real)
            re -= both
            place, inside = i[:, None] * step + c[None, :], (i < n)[:, None] & (c < count)[None, :]
            total += tl.sum(tl.load(at + place, mask=inside, other=0.0) * (w_re * re - w_im * im), 0)
            total -= tl.sum(tl.load(at + count + place, mask=inside, other=0.0) * (w_re * im + w_im * re), 0)
    value = tl.load(own + s * count + c, mask=c < count, other=0.0) - total
    tl.store(out + s * count + c, value, mask=c < count)


@triton.jit
def _inverse(re, im):
    size = re * re + im * im
    return re / size, -im / size


@triton.jit(do_not_specialize=["n"])
def invert(G, log_abs, unit, n, N: tl.constexpr):
    b, i, j = tl.program_id(0).to(tl.int64), tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    at, inside = G + 2 * (b * n * n + i * n + j), (i < n) & (j < n)
    re, im = tl.load(at, mask=inside, other=0.0), tl.load(at + 1, mask=inside, other=0.0)
    size, u_re, u_im = (
        tl.sum(tl.sum(re * 0.0, 1), 0),
        tl.sum(tl.sum(re * 0.0, 1), 0) + 1.0,
        tl.sum(tl.sum(re * 0.0, 1), 0),
    )
    for p in range(n):
        row_re, row_im = tl.sum(tl.where(i == p, re, 0.0), 0)[None, :], tl.sum(tl.where(i == p, im, 0.0), 0)[None, :]
        col_re, col_im = tl.sum(tl.where(j == p, re, 0.0), 1)[:, None], tl.sum(tl.where(j == p, im, 0.0), 1)[:, None]
        p_re = tl.sum(tl.sum(tl.where(j == p, row_re, 0.0), 1), 0)
        p_im = tl.sum(tl.sum(tl.where(j == p, row_im, 0.0), 1), 0)
        scale = tl.sqrt(p_re * p_re + p_im * p_im)
        size += tl.log(scale)
        u_re, u_im = (u_re * p_re - u_im * p_im) / scale, (u_re * p_im + u_im * p_re) / scale
        v_re, v_im = _inverse(p_re, p_im)
        # In place: the pivot's row and column become those of the inverse, the rest loses their product.
        row_re, row_im = row_re * v_re - row_im * v_im, row_re * v_im + row_im * v_re
        row_re, row_im = tl.where(j == p, v_re, row_re), tl.where(j == p, v_im, row_im)
        keep = j != p
        re = tl.where(i == p, row_re, tl.where(keep, re, 0.0) - (col_re * row_re - col_im * row_im))
        im = tl.where(i == p, row_im, tl.where(keep, im, 0.0) - (col_re * row_im + col_im * row_re))
    tl.store(at, re, mask=inside)
    tl.store(at + 1, im, mask=inside)
    tl.store(log_abs + b, size)
    tl.store(unit + 2 * b, u_re)
    tl.store(unit + 2 * b + 1, u_im)


@triton.jit(do_not_specialize=["n", "room"])
def border(inverse, inner, parts, squares, space, pivots, lost, n, room, N: tl.constexpr, R: tl.constexpr):
    b, j, last, plane = tl.program_id(0).to(tl.int64), tl.arange(0, N), n - 1, room * room
    real: tl.constexpr = inverse.dtype.element_ty
    inverse, inner, space = inverse + b * 2 * plane, inner + b * 2 * plane, space + b * 2 * N
    four, old = parts + b * 4 * n, j < last
    g_re, g_im = tl.load(four + j, mask=old, other=0.0), tl.load(four + n + j, mask=old, other=0.0)
    y_re, y_im = tl.zeros((R, N), real), tl.zeros((R, N), real)
    for first in range(0, last, R):  # x = G⁻¹g by rows, y = rᵀG⁻¹ on the way
        i = first + tl.arange(0, R)
        at, inside = i[:, None] * room + j[None, :], (i < last)[:, None] & old[None, :]
        re, im = tl.load(inverse + at, mask=inside, other=0.0), tl.load(inverse + plane + at, mask=inside, other=0.0)
        tl.store(space + i, tl.sum(re * g_re[None, :] - im * g_im[None, :], 1), mask=i < last)
        tl.store(space + N + i, tl.sum(re * g_im[None, :] + im * g_re[None, :], 1), mask=i < last)
        b_re = tl.load(four + 2 * n + i, mask=i < last, other=0.0)[:, None]
        b_im = tl.load(four + 3 * n + i, mask=i < last, other=0.0)[:, None]
        y_re += re * b_re - im * b_im
        y_im += re * b_im + im * b_re
    tl.debug_barrier()  # every thread sees x
    row_re, row_im = tl.sum(y_re, 0), tl.sum(y_im, 0)
    r_re, r_im = tl.load(four + 2 * n + j, mask=old, other=0.0), tl.load(four + 3 * n + j, mask=old, other=0.0)
    x_re, x_im = tl.load(space + j, mask=old, other=0.0), tl.load(space + N + j, mask=old, other=0.0)
    p_re = tl.load(four + last) - tl.sum(r_re * x_re - r_im * x_im, 0)
    p_im = tl.load(four + n + last) - tl.sum(r_re * x_im + r_im * x_re, 0)
    tl.store(pivots + 2 * b, p_re)
    tl.store(pivots + 2 * b + 1, p_im)
    v_re, v_im = _inverse(p_re, p_im)
    row_re, row_im = tl.where(j == last, -1.0, row_re)[None, :], tl.where(j == last, 0.0, row_im)[None, :]
    four = squares + b * 4 * n
    c_re, c_im = tl.load(four + j, mask=j < n, other=0.0), tl.load(four + n + j, mask=j < n, other=0.0)
    t_re, t_im = tl.zeros((R, N), real), tl.zeros((R, N), real)
    for first in range(0, n, R):  # (x, −1)(y, −1)ᵀ/π borders the inverse
        i = first + tl.arange(0, R)
        at, new = i[:, None] * room + j[None, :], (i < n)[:, None] & (j < n)[None, :]
        inside = (i < last)[:, None] & old[None, :]
        re, im = tl.load(inverse + at, mask=inside, other=0.0), tl.load(inverse + plane + at, mask=inside, other=0.0)
        a_re = tl.where(i == last, -1.0, tl.load(space + i, mask=i < last, other=0.0))
        a_im = tl.load(space + N + i, mask=i < last, other=0.0)
        e_re, e_im = (a_re * v_re - a_im * v_im)[:, None], (a_re * v_im + a_im * v_re)[:, None]
        re += e_re * row_re - e_im * row_im
        im += e_re * row_im + e_im * row_re
        tl.store(inverse + at, re, mask=new)
        tl.store(inverse + plane + at, im, mask=new)
        # VU is kept transposed: its last row there is the new column q̂Z²q, its last column the new row.
        d_re = tl.load(four + 2 * n + i, mask=i < n, other=0.0)[:, None]
        d_im = tl.load(four + 3 * n + i, mask=i < n, other=0.0)[:, None]
        u_re = tl.load(inner + at, mask=inside, other=0.0)
        u_im = tl.load(inner + plane + at, mask=inside, other=0.0)
        u_re = tl.where((i == last)[:, None], c_re[None, :], tl.where((j == last)[None, :], d_re, u_re))
        u_im = tl.where((i == last)[:, None], c_im[None, :], tl.where((j == last)[None, :], d_im, u_im))
        edge = new & ((i == last)[:, None] | (j == last)[None, :])
        tl.store(inner + at, u_re, mask=edge)
        tl.store(inner + plane + at, u_im, mask=edge)
        t_re += re * u_re - im * u_im
        t_im += re * u_im + im * u_re
    tl.store(lost + 2 * b, tl.sum(tl.sum(t_re, 0), 0))
    tl.store(lost + 2 * b + 1, tl.sum(tl.sum(t_im, 0), 0))
