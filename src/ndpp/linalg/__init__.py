"""Functions of arrays: the mathematics that all other packages use."""

from ndpp.linalg.coordinates import Coordinates, coordinates
from ndpp.linalg.eigen import EigenBasis
from ndpp.linalg.factor import row_blocks
from ndpp.linalg.scaling import entry_magnitudes, quadratic_forms, unit_of
from ndpp.linalg.schur import condition_on, rank_one_condition
from ndpp.linalg.size_law import (
    ZERO_WEIGHT,
    TiltedLaw,
    inclusion_matrix,
    log_elementary,
    nodes,
    resolvent,
    rounding_error,
    tilt_for,
    tilted_law,
)
from ndpp.linalg.skew import dominating, skew_part, symmetric_part, youla

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
    "log_elementary",
    "nodes",
    "quadratic_forms",
    "rank_one_condition",
    "resolvent",
    "rounding_error",
    "row_blocks",
    "skew_part",
    "symmetric_part",
    "tilt_for",
    "tilted_law",
    "unit_of",
    "youla",
]
