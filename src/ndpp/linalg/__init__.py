"""Functions of arrays: the mathematics that all other packages use."""

from ndpp.linalg.coordinates import Coordinates, coordinates
from ndpp.linalg.eigen import EigenBasis
from ndpp.linalg.factor import row_blocks
from ndpp.linalg.scaling import entry_magnitudes, quadratic_forms, unit_of
from ndpp.linalg.schur import condition_on, log_det_or_zero, log_minor, rank_one_condition, schur_complement
from ndpp.linalg.size_law import (
    ZERO_WEIGHT,
    TiltedLaw,
    inclusion_matrix,
    law_of_sum,
    log_elementary,
    node_count,
    nodes,
    resolvent,
    rounding_error,
    tilt_for,
    tilted_law,
)
from ndpp.linalg.skew import dominating, skew_absolute, skew_part, symmetric_part, youla
from ndpp.linalg.tilts import solve_tilt, solve_tilts, tilt_of_coins

__all__ = [
    "ZERO_WEIGHT",
    "Coordinates",
    "EigenBasis",
    "TiltedLaw",
    "condition_on",
    "coordinates",
    "dominating",
    "entry_magnitudes",
    "inclusion_matrix",
    "law_of_sum",
    "log_det_or_zero",
    "log_elementary",
    "log_minor",
    "node_count",
    "nodes",
    "quadratic_forms",
    "rank_one_condition",
    "resolvent",
    "rounding_error",
    "row_blocks",
    "schur_complement",
    "skew_absolute",
    "skew_part",
    "solve_tilt",
    "solve_tilts",
    "symmetric_part",
    "tilt_for",
    "tilt_of_coins",
    "tilted_law",
    "unit_of",
    "youla",
]
