"""Exact samples of a Gaussian function on points by DPPy's mode "alpha", as each line of standard input asks for.

    python dppy_functions.py points.npy GAMMA LIMIT

A line "10 5" (a size, 0 for any, and a number of sets) prepares anew and writes [CPU time of the first set from nothing, that of each
further set]; null if they take longer than LIMIT seconds of CPU time, or an error message.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import redirect_stdout
from typing import Any

import numpy as np
from dppy.finite_dpps import FiniteDPP


def main() -> None:
    points, gamma, limit = np.load(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    random = np.random.RandomState(0)

    def gaussian(A: np.ndarray, B: np.ndarray | None = None) -> Any:
        if B is None and A.ndim == 1:
            return 1.0  # of one point
        A = np.atleast_2d(A)
        B = A if B is None else np.atleast_2d(B)
        squares = (A**2).sum(axis=1)[:, None] + (B**2).sum(axis=1) - 2 * A @ B.T
        return np.exp(-gamma * np.maximum(squares, 0))

    signal.signal(signal.SIGVTALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    for line in sys.stdin:
        size, count = map(int, line.split())
        dpp, times = FiniteDPP("likelihood", L_eval_X_data=(gaussian, points)), []
        found: list[float] | str | None = None
        signal.setitimer(signal.ITIMER_VIRTUAL, limit)
        try:
            for _ in range(1 + count):
                began = time.process_time()
                if size:
                    dpp.sample_exact_k_dpp(size, mode="alpha", random_state=random)
                else:
                    dpp.sample_exact(mode="alpha", random_state=random)
                times.append(time.process_time() - began)
            found = [times[0], sum(times[1:]) / count]
        except KeyboardInterrupt:
            pass
        except ValueError as error:
            found = str(error).partition("\n")[0]
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        print(json.dumps(found), file=sys.__stdout__, flush=True)


if __name__ == "__main__":
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        main()
