"""Learning kernels and mixtures from baskets: scikit-learn estimators, trained with torch."""

from ndpp.errors import MissingExtraError

try:
    import sklearn  # noqa: F401
    import torch  # noqa: F401
except ImportError as missing:
    raise MissingExtraError(missing.name or "torch", "learn", "Learning a kernel") from None

from ndpp.learning.estimator import NDPP, ONDPP, SymmetricDPP
from ndpp.learning.fitting import fit
from ndpp.learning.mixture import MixtureNDPP
from ndpp.learning.models import LiteratureStart, PopularityStart, PublishedTraining
from ndpp.learning.updating import Updated, update

__all__ = [
    "NDPP",
    "ONDPP",
    "LiteratureStart",
    "MixtureNDPP",
    "PopularityStart",
    "PublishedTraining",
    "SymmetricDPP",
    "Updated",
    "fit",
    "update",
]
