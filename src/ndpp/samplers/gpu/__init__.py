"""The engines of :class:`~ndpp.samplers.Exact` and of mixtures on a CUDA device: many samples in parallel, in torch.

Start with ``docs/gpu-internals.md``, which also explains the letters in shapes. ``ndpp.samplers`` imports this package when a device is
requested; nothing else imports it, so importing the samplers does not import torch. The algorithms are those of the CPU: the same ladder of
circles, plans and monitors, clocks, eigenvectors. Only the form of the state differs. Sample i depends on the seed and on i alone; its
stream is not that of the CPU, so the two engines agree in distribution and not draw by draw.

From top to bottom; a module imports only from those below it:

===============  ===================================================================================
``laws``         the engines of all distributions: T by the engine below or, with shared ties, by clocks, and R
``limits``       sets that keep limits, from those that another engine proposes
``exact``        the engine of kernels: by eigenvectors, ``clock`` (with ``spectra``) or ``run``
``sets``         what engines share: batches, proposals until one is accepted, unions
``run``          takes samples through their circles; retries where a monitor fails
``schedule``     which circles the samples use, planned on a few pilot samples
``group``        samples on one circle: monitors, the next draw; ``states``: the two forms of their state
``circles``      Z at the nodes of circles, on the device
``memory``       how many samples fit; rows of Q on the device
``proposals``    rounds of proposals until one is accepted; random numbers
``kernels``      Triton kernels, each with its plain twin
===============  ===================================================================================
"""
