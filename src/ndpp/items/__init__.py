"""Draw one item a with probability ∝ q_aᵀ M q_a, by leverage: :class:`LeverageTable`.

q_a is row a of Q, the kernel's coordinates (L = Q B Qᵀ, orthonormal columns), and M a positive semidefinite matrix of order r; only its
symmetric part matters. Exact samplers and the up-steps of the walk all reduce to such draws, with one M after another. The table takes O(n)
memory in addition to X; a draw costs O(r³ / tr M), whatever n.
"""

from ndpp.items.table import ItemDraw, LeverageTable

__all__ = ["ItemDraw", "LeverageTable"]
