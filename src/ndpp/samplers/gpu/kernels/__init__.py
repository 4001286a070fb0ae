"""The operations that many small torch calls would be slow at: a Triton kernel each, beside its plain twin.

Every module has the same order: the function that the engine calls, which chooses between the two; the plain twin, in torch, whose name
ends in ``_plain``; the kernels, whose names end in ``_kernel``, and their helpers. The twin says what is computed and is the kernel's
oracle in the tests. It also does the work where there is no Triton, on CPU tensors, and for matrices too large for a kernel.

==================  ===========================================  =============================  =======================================
module              what it computes                             kernel                         one program
==================  ===========================================  =============================  =======================================
``propose``         candidates by leverage, from Philox          ``propose_kernel``             512 candidates
``weighed_rows``    Σ_j table[row, j]·weight_j                   ``weighed_rows_kernel``        32 candidates of a sample
``judge``           Re w_j xᵀG_j⁻¹y for candidates               ``judge_small_kernel``,        16 or 64 candidates of a sample at a
                                                                 ``judge_kernel``               node
``invert``          G⁻¹ and log det G, in place                  ``invert_kernel``              one matrix
``border``          G⁻¹ with one item more, and tr(G⁻¹VU)        ``border_kernel``              one matrix
==================  ===========================================  =============================  =======================================

``runtime`` says whether kernels can run; ``layout`` says how complex matrices lie in memory; ``arithmetic`` has what kernels share.
Shapes are those of :mod:`ndpp.samplers.gpu`: S samples, h nodes, n items chosen, c candidates, r the rank.
"""
