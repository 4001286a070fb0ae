"""The engine of :class:`~ndpp.samplers.Exact` on a CUDA device: many samples side by side, in torch.

:class:`~ndpp.samplers.Exact` names this package and loads it when a device is asked for; nothing else imports it, so torch is imported
here and nowhere else below learning. The rules are those of the CPU: the same ladder of circles, the same plan of their nodes, the same
monitors. What differs is the form of the state (``_group``). Sample i depends on the seed and on i alone; its stream is not that of the
CPU, so the two engines agree in law and not draw by draw.
"""
