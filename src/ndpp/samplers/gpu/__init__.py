"""The engine of :class:`~ndpp.samplers.Exact` on a CUDA device: many samples side by side, in torch.

``docs/gpu-internals.md`` is the way in. :class:`~ndpp.samplers.Exact` names this package and loads it when a device is asked for; nothing
else imports it, so torch is imported here and nowhere else below learning. The rules are those of the CPU: the same ladder of circles, the
same plan of their nodes, the same monitors. What differs is the form of the state. Sample i depends on the seed and on i alone; its stream
is not that of the CPU, so the two engines agree in distribution and not draw by draw.

From top to bottom; a module imports only from those below it:

===============  ============================================================================================
``exact``        the engine: batches of samples in, draws out
``run``          samples through their circles, and what becomes of those that the monitors object to
``schedule``     which circles samples go through, planned on a few pilots
``group``        samples on one circle: their state, one item more, the monitors, the next draw
``circles``      Z at the nodes of circles, on the device
``accept``       rounds of candidates, until one is accepted
``catalogue``    rows of Q and the leverage table, on the device
``samples``      samples in progress: records that travel between all of these
``batches``      what to do when memory runs out or the device is lost
``memory``       how many samples fit
``streams``      random numbers of a sample
``kernels``      Triton kernels, each with its plain twin
``arrays``       torch's spelling of the operations of :mod:`ndpp.linalg.operations`
===============  ============================================================================================

Letters in shapes, in all of these:

=========  =============================================================================================
``S``      samples of a group
``wanted`` items that each of them will have, beyond the given ones
``n``      items that each of them has
``room``   items that there is room for on the present circle, wanted at most
``r``      the rank
``h``      nodes of the upper half of a circle; the others are their conjugates
``c``      candidates of a round, per sample
``b``      small matrices, S·h
``2, 4``   real and imaginary parts; those of Zq and then of Zᵀq
=========  =============================================================================================
"""
