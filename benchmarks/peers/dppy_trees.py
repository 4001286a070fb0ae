"""Uniform spanning trees of a square grid by the library DPPy, as many as each line of standard input asks for.

    python dppy_trees.py 30

First comes a line with the CPU time of one tree from the networkx graph on, the shortest of several. Then a line "25" draws 25 trees by
Wilson's algorithm, the default, and writes {"seconds": CPU time per tree, "leaves": [how many leaves each has]}.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import redirect_stdout

import networkx
import numpy as np
from dppy.exotic_dpps import UST

FIRST = 5
"""How often one tree with its preparation is timed."""


def main() -> None:
    side, rng = int(sys.argv[1]), np.random.RandomState(0)
    graph = networkx.convert_node_labels_to_integers(networkx.grid_2d_graph(side, side))
    first = []
    for _ in range(FIRST):
        began = time.process_time()
        trees = UST(graph)
        trees.sample(random_state=rng)
        first.append(time.process_time() - began)
    print(min(first), file=sys.__stdout__, flush=True)
    for line in sys.stdin:
        trees.flush_samples()
        began = time.process_time()
        for _ in range(int(line)):
            trees.sample(random_state=rng)
        seconds = (time.process_time() - began) / int(line)
        leaves = [sum(degree == 1 for _, degree in tree.degree()) for tree in trees.list_of_samples]
        print(json.dumps({"seconds": seconds, "leaves": leaves}), file=sys.__stdout__, flush=True)


if __name__ == "__main__":
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        main()
