"""Table 3: time and rejections of all samplers on ONDPP kernels, which are trained to keep rejections low [Han22, App. A.4]."""

from __future__ import annotations

from ndpp_experiments.record import Result, Say
from ndpp_experiments.samplers_timed import PAPERS_WALK, REJECTION
from ndpp_experiments.table2 import Published, learned_table

PAPER_TABLE: Published = {
    ("k = 10", REJECTION, "seconds"): ("0.04", "0.6", "1.9", "0.2", "0.8"),
    ("k = 10", PAPERS_WALK, "seconds"): ("6.5", "9.0", "11.8", "8.3", "10.7"),
    ("k = 10", REJECTION, "rejections"): ("0", "12.4", "36.6", "2.1", "13.4"),
    ("k = 10", PAPERS_WALK, "rejections"): ("0", "0.9", "1.3", "0.3", "0.9"),
    ("k = 50", REJECTION, "seconds"): ("0.4", "7.33·10^9 (*)", "1.92·10^8 (*)", "99.1", "7.95·10^6 (*)"),
    ("k = 50", PAPERS_WALK, "seconds"): ("140.7", "450.8", "307.9", "182.9", "285.2"),
    ("k = 50", REJECTION, "rejections"): ("0.1", "2.08·10^8 (*)", "4.96·10^8 (*)", "239.7", "1.61·10^7 (*)"),
    ("k = 50", PAPERS_WALK, "rejections"): ("0.1", "6.2", "2.6", "0.5", "2.1"),
    ("any size", REJECTION, "seconds"): ("0.1", "0.7", "6.0", "7.5", "2.8"),
    ("any size", PAPERS_WALK, "seconds"): ("23.1", "8.3", "11.7", "81.3", "17.1"),
    ("any size", REJECTION, "rejections"): ("0.1", "15.0", "91.6", "27.5", "34.0"),
    ("any size", PAPERS_WALK, "rejections"): ("0.0", "1.1", "1.3", "0.4", "0.9"),
}


def measure(*, quick: bool, seed: int, say: Say) -> Result:
    """Time every sampler on the ONDPP kernels."""
    return learned_table(PAPER_TABLE, orthogonal=True, quick=quick, seed=seed, say=say)
