"""Two indexes that draw one item a with probability ∝ q_aᵀ M q_a.

q_a is row a of Q, the kernel's coordinates (L = Q B Qᵀ, orthonormal columns), and M a positive semidefinite matrix of order r; only its
symmetric part matters. Exact samplers and the up-steps of the walk all reduce to such draws, with one M after another.

================  ==========================  =======================  ====================
index             memory in addition to X     cost per draw            use
================  ==========================  =======================  ====================
LeverageTable     O(n)                        O(r³ / tr M), any n      M close to its bound
Tree              O(n r² / leaf)              O(r² (log n + leaf))     M of small trace
================  ==========================  =======================  ====================
"""

from ndpp.items.table import ItemDraw, LeverageTable
from ndpp.items.tree import Tree

__all__ = ["ItemDraw", "LeverageTable", "Tree"]
