"""Exact samples of one size by the library DPPy, as many as each line of standard input asks for.

    python dppy_samples.py X.npy 10

The kernel is L = XXᵀ, given by its factor, so that DPPy decomposes the small matrix XᵀX. First comes a line with the CPU time of one set
from the factor, preparation included, the shortest of several. Then a line "25" draws 25 sets with each of the modes, and writes {"mode":
{"seconds": CPU time per set, "sets": […]}}, without preparation.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import redirect_stdout

import numpy as np
from dppy.finite_dpps import FiniteDPP

MODES = ("GS", "GS_bis")
"""Gram-Schmidt, which is the default, and its variant; the other modes are slower."""
FIRST = 5
"""How often one set with its preparation is timed."""


def main() -> None:
    X, size, rng = np.load(sys.argv[1]), int(sys.argv[2]), np.random.RandomState(0)
    first = []
    for _ in range(FIRST):
        began = time.process_time()
        dpp = FiniteDPP("likelihood", L_gram_factor=X.T)
        dpp.sample_exact_k_dpp(size, random_state=rng)
        first.append(time.process_time() - began)
    print(min(first), file=sys.__stdout__, flush=True)
    for line in sys.stdin:
        drawn = {}
        for mode in MODES:
            dpp.flush_samples()
            began = time.process_time()
            for _ in range(int(line)):
                dpp.sample_exact_k_dpp(size, mode=mode, random_state=rng)
            seconds = (time.process_time() - began) / int(line)
            drawn[mode] = {"seconds": seconds, "sets": [[int(a) for a in items] for items in dpp.list_of_samples]}
        print(json.dumps(drawn), file=sys.__stdout__, flush=True)


if __name__ == "__main__":
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):  # the library prints what it decomposes
        main()
