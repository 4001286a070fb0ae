"""Indexes that draw one item with probability ∝ qᵀMq, behind one interface.

================  ==========================  =======================  ====================
index             memory in addition to X     cost per draw            use
================  ==========================  =======================  ====================
LeverageTable     O(n)                        O(r³ / tr M), any n      M close to its bound
Tree              O(n r² / leaf)              O(r² (log n + leaf))     M of small trace
================  ==========================  =======================  ====================
"""

from ndpp.items.base import ItemDraws, ItemIndex
from ndpp.items.table import LeverageTable
from ndpp.items.tree import Tree

__all__ = ["ItemDraws", "ItemIndex", "LeverageTable", "Tree"]
