"""Thousands of items out of millions: training data, documents, structures. Sets of any size, from vectors."""

from ndpp.inference.subset import subset

__all__ = ["subset"]
