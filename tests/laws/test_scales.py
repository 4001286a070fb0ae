"""Laws at any scale of X answer, or say that double precision is not enough."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from law_table import BASES, KINDS, Base, Kind
from ndpp.errors import NDPPError


@pytest.mark.filterwarnings("ignore::ndpp.errors.PrecisionWarning")
@pytest.mark.parametrize("base", BASES[:3], ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_laws_at_any_scale_answer_or_refuse(kind: Kind, base: Base):
    for k in (-60, -30, 24, 28, 32, 44, 60):
        for change in ("exclude", "condition", "restrict"):
            with suppress(NDPPError):
                law = getattr(kind.build(replace(base, X=base.X * 2.0**k)), change)([0, 1])
                p = law.inclusion_probabilities()
                assert np.isfinite(p).all()
                law.size_distribution(), law.sample(1, rng=0), law.tilt({2: 2.0}).log_probs([[2]])
