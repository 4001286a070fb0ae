"""The engines of :class:`~ndpp.samplers.Exact` and of mixtures on a CUDA device: many samples in parallel, in torch.

Start with ``docs/gpu-internals.md``, which also explains the letters in shapes. :class:`~ndpp.samplers.Exact` loads this package by name
when a device is requested; nothing else imports it, so importing the samplers does not import torch. The algorithms are those of the CPU:
the same ladder of circles, plans and monitors, clocks, eigenvectors. Only the form of the state differs. Sample i depends on the seed and
on i alone; its stream is not that of the CPU, so the two engines agree in distribution and not draw by draw.

From top to bottom; a module imports only from those below it:

===============  ======================================================================
``families``     the engine of mixtures over families: families by ``mixture``, then their items
``mixture``      the engine of mixtures with shared ties: all components at once, by clocks
``exact``        the engine of kernels: batches of samples in, draws out
``projections``  samples of a symmetric kernel, by its eigenvectors
``clock``        samples of any size, by clocks that run together
``spectra``      resolvents of a kernel or of mixtures in coordinates in which they are diagonal
``run``          takes samples through their circles; retries where a monitor fails
``schedule``     which circles the samples use, planned on a few pilot samples
``group``        samples on one circle: state, conditioning, monitors, the next draw
``circles``      Z at the nodes of circles, on the device
``samples``      records of samples in progress
``device_rows``  rows of Q and the leverage table, on the device
``memory``       how many samples fit
``proposals``    rounds of proposals until one is accepted; random numbers
``kernels``      Triton kernels, each with its plain twin
``arrays``       the operations of :mod:`ndpp.linalg.operations` for torch
===============  ======================================================================
"""
