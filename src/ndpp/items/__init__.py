"""Draw one item with probability ∝ qᵀMq: three indexes behind one interface.

================  ======================  ==============================  =========================
index             memory beside X         cost of a draw                  use
================  ======================  ==============================  =========================
LeverageTable     O(n)                    O(r³ / tr M), any n             M close to its bound
Tree              O(n r² / leaf)          O(r² (log n + leaf))            M of small trace
Scan              none                    O(n r²)                         small n, oracle
================  ======================  ==============================  =========================
"""

from ndpp.items.base import ItemDraws, ItemIndex
from ndpp.items.scan import Scan
from ndpp.items.table import LeverageTable
from ndpp.items.tree import Tree

__all__ = ["ItemDraws", "ItemIndex", "LeverageTable", "Scan", "Tree"]
