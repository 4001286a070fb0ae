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
    cell = tl.minimum((_unit(w0, w1) * (zero + n).to(tl.float64)).to(tl.int64), n - 1)  # n, where rounded up
    keep = _unit(w2, w3) < tl.load(threshold + cell, mask=here, other=0.0)
    row = tl.where(keep, cell, tl.load(alias + cell, mask=here, other=0))
    tl.store(rows + at, row, mask=here)
    tl.store(bars + at, _unit(w4, w5) * tl.load(leverage + row, mask=here, other=0.0), mask=here)


@triton.jit(do_not_specialize=["count", "width", "half"])
def weighed_rows(table, rows, weights, less, out, count, width, half, C: tl.constexpr, W: tl.constexpr):
    s, c = tl.program_id(0).to(tl.int64), tl.program_id(1) * C + tl.arange(0, C)
    j = tl.arange(0, W)
    row = tl.load(rows + s * count + c, mask=c < count, other=0)
    weight = tl.load(weights + s * width + j, mask=j < width, other=0.0)
    value = tl.load(
        table + row[:, None] * width + j[None, :], mask=(c < count)[:, None] & (j < width)[None, :], other=0.0
    )
    total = tl.sum(value * weight[None, :], 1)
    for node in range(half):
        total -= tl.load(less + (s * half + node) * count + c, mask=c < count, other=0.0)
    tl.store(out + s * count + c, total, mask=c < count)


@triton.jit
def _place(half, count, C: tl.constexpr):
    # Programs that share a matrix run side by side, so that it is read from memory once.
    blocks = tl.cdiv(count, C)
    node = tl.program_id(0).to(tl.int64) // blocks
    return node, node // half, node % half, tl.program_id(0) % blocks * C + tl.arange(0, C)


@triton.jit(do_not_specialize=["n", "half", "eights", "twos"])
def judge_small(P, inverse, w, out, n, half, eights, twos, N: tl.constexpr, C: tl.constexpr, U: tl.constexpr):
    count, room, even, i = 8 * eights, 2 * twos, (n + 1) // 2 * 2, tl.arange(0, N)
    node, s, j, c = _place(half, count, C)
    step, total = half * 4 * count, tl.zeros((C,), tl.float64)
    g, at = inverse + node * 2 * room * room, P + (s * n * half + j) * 4 * count
    y, inside = at + i[:, None] * step + 2 * count + c[None, :], (i < n)[:, None] & (c < count)[None, :]
    y_re, y_im = tl.load(y, mask=inside, other=0.0), tl.load(y + count, mask=inside, other=0.0)
    w_re, w_im = tl.load(w + 2 * node), tl.load(w + 2 * node + 1)
    for k in tl.range(0, n, loop_unroll_factor=U):
        g_re = tl.load(g + k * even + i, mask=i < even, other=0.0)[:, None]
        g_im = tl.load(g + room * room + k * even + i, mask=i < even, other=0.0)[:, None]
        x_re = tl.load(at + k * step + c, mask=c < count, other=0.0)
        x_im = tl.load(at + k * step + count + c, mask=c < count, other=0.0)
        re, im = tl.sum(g_re * y_re - g_im * y_im, 0), tl.sum(g_re * y_im + g_im * y_re, 0)
        total += (w_re * x_re - w_im * x_im) * re - (w_re * x_im + w_im * x_re) * im
    tl.store(out + node * count + c, total, mask=c < count)


@triton.jit
def _put(values, i: tl.constexpr, value):
    return values[:i] + (value,) + values[i + 1 :]  # noqa: RUF005  Triton has no starred tuples


@triton.jit(do_not_specialize=["n", "half", "eights", "twos"])
def judge(
    P, inverse, w, out, n, half, eights, twos, N: tl.constexpr, C: tl.constexpr, T: tl.constexpr, TURNS: tl.constexpr
):
    count, room, even = 8 * eights, 2 * twos, (n + 1) // 2 * 2
    node, s, j, c = _place(half, count, C)
    step, total = half * 4 * count, tl.zeros((C,), tl.float64)
    g, at = inverse + node * 2 * room * room, P + (s * n * half + j) * 4 * count
    w_re, w_im = tl.load(w + 2 * node), tl.load(w + 2 * node + 1)
    for turn in tl.static_range(TURNS):  # T tiles of G⁻¹y at a time, so that y is read once
        zero = tl.zeros((N, C), tl.float64)
        re, im = (zero,) * T, (zero,) * T
        for tile in range(T * TURNS):
            m = tile * N + tl.arange(0, N)
            place, inside = m[:, None] * step + c[None, :], (m < n)[:, None] & (c < count)[None, :]
            y_re = tl.load(at + 2 * count + place, mask=inside, other=0.0)
            y_im = tl.load(at + 3 * count + place, mask=inside, other=0.0)
            for t in tl.static_range(T):
                i = (turn * T + t) * N + tl.arange(0, N)
                place, inside = i[:, None] * even + m[None, :], (i < n)[:, None] & (m < even)[None, :]
                g_re = tl.load(g + place, mask=inside, other=0.0)
                g_im = tl.load(g + room * room + place, mask=inside, other=0.0)
                a = tl.dot(g_re, y_re, re[t], input_precision="ieee", out_dtype=tl.float64)
                b = tl.dot(g_re, y_im, im[t], input_precision="ieee", out_dtype=tl.float64)
                b = tl.dot(g_im, y_re, b, input_precision="ieee", out_dtype=tl.float64)
                a = tl.dot(-g_im, y_im, a, input_precision="ieee", out_dtype=tl.float64)
                re, im = _put(re, t, a), _put(im, t, b)
        for t in tl.static_range(T):
            i = (turn * T + t) * N + tl.arange(0, N)
            place, inside = i[:, None] * step + c[None, :], (i < n)[:, None] & (c < count)[None, :]
            x_re = tl.load(at + place, mask=inside, other=0.0)
            x_im = tl.load(at + count + place, mask=inside, other=0.0)
            total += tl.sum(x_re * (w_re * re[t] - w_im * im[t]) - x_im * (w_re * im[t] + w_im * re[t]), 0)
    tl.store(out + node * count + c, total, mask=c < count)


@triton.jit
def _inverse(re, im):
    size = re * re + im * im
    return re / size, -im / size


@triton.jit
def _times(a_re, a_im, b_re, b_im):
    re = tl.dot(a_re, b_re, input_precision="ieee", out_dtype=tl.float64)
    re -= tl.dot(a_im, b_im, input_precision="ieee", out_dtype=tl.float64)
    im = tl.dot(a_re, b_im, input_precision="ieee", out_dtype=tl.float64)
    im = tl.dot(a_im, b_re, im, input_precision="ieee", out_dtype=tl.float64)
    return re, im


@triton.jit
def _eliminate(re, im, i, j, n, size, u_re, u_im):
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
        re = tl.where(i == p, row_re, tl.where(j == p, 0.0, re) - (col_re * row_re - col_im * row_im))
        im = tl.where(i == p, row_im, tl.where(j == p, 0.0, im) - (col_re * row_im + col_im * row_re))
    return re, im, size, u_re, u_im


@triton.jit(do_not_specialize=["n", "twos"])
def invert(G, log_abs, unit, n, twos, N: tl.constexpr):
    b, i, j = tl.program_id(0).to(tl.int64), tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    even, tiles = (n + 1) // 2 * 2, tl.cdiv(n, N)
    plane, G = 4 * twos * twos, G + b * 8 * twos * twos
    size = tl.load(G) * 0.0
    u_re, u_im = size + 1.0, size
    # Block by block: the pivot's row and column become those of the inverse, the rest loses their product.
    for turn in range(tiles):
        p = turn * N
        at, inside = (p + i) * even + p + j, (p + i < n) & (p + j < n)
        re, im = tl.load(G + at, mask=inside, other=0.0), tl.load(G + plane + at, mask=inside, other=0.0)
        re, im, size, u_re, u_im = _eliminate(re, im, i, j, tl.minimum(N, n - p), size, u_re, u_im)
        tl.store(G + at, re, mask=inside)
        tl.store(G + plane + at, im, mask=inside)
        for other in range(1, tiles):
            q = (turn + other) % tiles * N
            at, inside = (p + i) * even + q + j, (p + i < n) & (q + j < n)
            b_re, b_im = tl.load(G + at, mask=inside, other=0.0), tl.load(G + plane + at, mask=inside, other=0.0)
            b_re, b_im = _times(re, im, b_re, b_im)
            tl.store(G + at, b_re, mask=inside)
            tl.store(G + plane + at, b_im, mask=inside)
        tl.debug_barrier()  # every thread sees the row
        for below in range(1, tiles):
            r = (turn + below) % tiles * N
            left, here = (r + i) * even + p + j, (r + i < n) & (p + j < n)
            a_re, a_im = tl.load(G + left, mask=here, other=0.0), tl.load(G + plane + left, mask=here, other=0.0)
            for other in range(1, tiles):
                q = (turn + other) % tiles * N
                at, inside = (p + i) * even + q + j, (p + i < n) & (q + j < n)
                b_re, b_im = tl.load(G + at, mask=inside, other=0.0), tl.load(G + plane + at, mask=inside, other=0.0)
                b_re, b_im = _times(a_re, a_im, b_re, b_im)
                at, inside = (r + i) * even + q + j, (r + i < n) & (q + j < n)
                c_re, c_im = tl.load(G + at, mask=inside, other=0.0), tl.load(G + plane + at, mask=inside, other=0.0)
                tl.store(G + at, c_re - b_re, mask=inside)
                tl.store(G + plane + at, c_im - b_im, mask=inside)
            a_re, a_im = _times(a_re, a_im, re, im)
            tl.store(G + left, -a_re, mask=here)
            tl.store(G + plane + left, -a_im, mask=here)
        tl.debug_barrier()
    tl.store(log_abs + b, size)
    tl.store(unit + 2 * b, u_re)
    tl.store(unit + 2 * b + 1, u_im)


@triton.jit
def _load(matrix, i, first, n, stride, plane, W: tl.constexpr):
    j = first + tl.arange(0, W)[None, :]
    at, inside = matrix + i * stride + j, (i < n) & (j < (n + 1) // 2 * 2)
    re, im = tl.load(at, mask=inside, other=0.0), tl.load(at + plane, mask=inside, other=0.0)
    return tl.where(j < n, re, 0.0), tl.where(j < n, im, 0.0)


@triton.jit
def _store(matrix, i, j, stride, plane, re, im, inside):
    at = matrix + i * stride + j
    tl.store(at, re, mask=inside)
    tl.store(at + plane, im, mask=inside)


@triton.jit(do_not_specialize=["n", "twos"])
def border(
    inverse, inner, parts, squares, pivots, lost, n, twos,
    W: tl.constexpr, T: tl.constexpr, R: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    b, last, room = tl.program_id(0).to(tl.int64), n - 1, 2 * twos
    plane, before, after = room * room, n // 2 * 2, (n + 1) // 2 * 2  # the distance of rows of G⁻¹ grows with it
    inverse, inner = inverse + b * 2 * plane, inner + b * 2 * plane
    four, squares = parts + b * 4 * n, squares + b * 4 * n
    zero, line = tl.zeros((R, W), tl.float64), tl.zeros((1, W), tl.float64)
    sum_re, sum_im = (zero,) * T, (zero,) * T
    for first in tl.range(0, last, R, num_stages=AHEAD):  # y = rᵀG⁻¹, in T tiles of columns
        i = first + tl.arange(0, R)[:, None]
        r_re = tl.load(four + 2 * n + i, mask=i < last, other=0.0)
        r_im = tl.load(four + 3 * n + i, mask=i < last, other=0.0)
        for t in tl.static_range(T):
            re, im = _load(inverse, i, t * W, last, before, plane, W)
            sum_re = _put(sum_re, t, sum_re[t] + (re * r_re - im * r_im))
            sum_im = _put(sum_im, t, sum_im[t] + (re * r_im + im * r_re))
    y_re, y_im, g_re, g_im = (line,) * T, (line,) * T, (line,) * T, (line,) * T
    less_re, less_im = line, line
    for t in tl.static_range(T):
        j = t * W + tl.arange(0, W)[None, :]
        g_re = _put(g_re, t, tl.load(four + j, mask=j < last, other=0.0))
        g_im = _put(g_im, t, tl.load(four + n + j, mask=j < last, other=0.0))
        y_re, y_im = _put(y_re, t, tl.sum(sum_re[t], 0)[None, :]), _put(y_im, t, tl.sum(sum_im[t], 0)[None, :])
        less_re += y_re[t] * g_re[t] - y_im[t] * g_im[t]
        less_im += y_re[t] * g_im[t] + y_im[t] * g_re[t]
    p_re = tl.load(four + last) - tl.sum(tl.sum(less_re, 1), 0)
    p_im = tl.load(four + n + last) - tl.sum(tl.sum(less_im, 1), 0)
    tl.store(pivots + 2 * b, p_re)
    tl.store(pivots + 2 * b + 1, p_im)
    v_re, v_im = _inverse(p_re, p_im)
    for t in tl.static_range(T):  # (y, −1)/π
        j = t * W + tl.arange(0, W)[None, :]
        e_re, e_im = tl.where(j == last, -1.0, y_re[t]), tl.where(j == last, 0.0, y_im[t])
        y_re, y_im = _put(y_re, t, e_re * v_re - e_im * v_im), _put(y_im, t, e_re * v_im + e_im * v_re)
    trace_re, trace_im = zero, zero
    # x = G⁻¹g; (x, −1)(y, −1)ᵀ/π borders the inverse. From the last rows up, since a row moves to where those behind it were. All of R rows
    # are read before any is written: a warp sums over them, and several warps wait for each other, as what they fetch ahead is shared.
    for first in tl.range(0, n, R, num_stages=AHEAD):
        i = (n - 1) // R * R - first + tl.arange(0, R)[:, None]
        m_re, m_im, u_re, u_im = (zero,) * T, (zero,) * T, (zero,) * T, (zero,) * T
        sums_re, sums_im = zero, zero
        for t in tl.static_range(T):
            re, im = _load(inverse, i, t * W, last, before, plane, W)
            m_re, m_im = _put(m_re, t, re), _put(m_im, t, im)
            re, im = _load(inner, i, t * W, last, room, plane, W)
            u_re, u_im = _put(u_re, t, re), _put(u_im, t, im)
        for t in tl.static_range(T):
            sums_re += m_re[t] * g_re[t] - m_im[t] * g_im[t]
            sums_im += m_re[t] * g_im[t] + m_im[t] * g_re[t]
        x_re, x_im = tl.where(i == last, -1.0, tl.sum(sums_re, 1)[:, None]), tl.sum(sums_im, 1)[:, None]
        d_re = tl.load(squares + 2 * n + i, mask=i < n, other=0.0)
        d_im = tl.load(squares + 3 * n + i, mask=i < n, other=0.0)
        for t in tl.static_range(T):
            j = t * W + tl.arange(0, W)[None, :]
            re = m_re[t] + (x_re * y_re[t] - x_im * y_im[t])
            im = m_im[t] + (x_re * y_im[t] + x_im * y_re[t])
            _store(inverse, i, j, after, plane, re, im, (i < n) & (j < after))
            # VU is kept transposed: its last row there is the new column q̂Z²q, its last column the new row.
            c_re, c_im = tl.load(squares + j, mask=j < n, other=0.0), tl.load(squares + n + j, mask=j < n, other=0.0)
            a_re = tl.where(i == last, c_re, tl.where(j == last, d_re, u_re[t]))
            a_im = tl.where(i == last, c_im, tl.where(j == last, d_im, u_im[t]))
            _store(inner, i, j, room, plane, a_re, a_im, (i < n) & (j < n) & ((i == last) | (j == last)))
            trace_re += re * a_re - im * a_im
            trace_im += re * a_im + im * a_re
    tl.store(lost + 2 * b, tl.sum(tl.sum(trace_re, 0), 0))
    tl.store(lost + 2 * b + 1, tl.sum(tl.sum(trace_im, 0), 0))
