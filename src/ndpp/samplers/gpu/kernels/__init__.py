"""Operations for which many small torch calls would be slow: each has a Triton kernel and a plain twin in torch.

All modules have the same order: the function that the engine calls and that chooses between the two; the twin, whose name ends in
``_plain``; the kernels, whose names end in ``_kernel``, and their helpers. The twin defines what is computed and is the kernel's oracle in
the tests. It also does the work without Triton, on CPU tensors, and for matrices too large for a kernel. ``docs/gpu-internals.md`` has a
table of the operations, and explains the letters in shapes.
"""
