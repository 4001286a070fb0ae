"""The random numbers of compiled routes: a small generator whose state is an array, seeded by the stream of the sample."""

from __future__ import annotations

import numpy as np

from ndpp._compiled import njit
from ndpp._types import AnyArray, FloatArray, IntArray

_U11, _U17, _U19, _U23, _U32, _U41, _U45 = (np.uint64(shift) for shift in (11, 17, 19, 23, 32, 41, 45))


def seed_words(rng: np.random.Generator) -> AnyArray:
    """Return the state of a generator for :func:`uniform`, four words."""
    words = rng.bit_generator.random_raw(8)
    return words[:4] ^ (words[4:] << _U32)  # some generators have words of 32 bits


@njit()
def uniform(state: AnyArray) -> float:
    """Return the next number in [0, 1) of the generator xoshiro256++ [Blackman & Vigna, 2021], whose state is four words."""
    a, b, c, d = state[0], state[1], state[2], state[3]
    total = a + d
    word = ((total << _U23) | (total >> _U41)) + a
    c ^= a
    d ^= b
    state[1] = b ^ c
    state[0] = a ^ d
    state[2] = c ^ (b << _U17)
    state[3] = (d << _U45) | (d >> _U19)
    return float(word >> _U11) * 2.0**-53


@njit()
def propose(seed: AnyArray, threshold: FloatArray, alias: AnyArray, n: int) -> tuple[IntArray, FloatArray]:
    """Return the next n candidates, by their leverage, and a uniform for the acceptance of each."""
    candidates, uniforms = np.empty(n, np.int64), np.empty(n)
    for c in range(n):
        cell = min(int(uniform(seed) * alias.size), alias.size - 1)
        candidates[c] = cell if uniform(seed) < threshold[cell] else alias[cell]
        uniforms[c] = uniform(seed)
    return candidates, uniforms
