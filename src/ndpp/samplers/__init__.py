"""Samplers behind one interface: ``prepare`` pays what depends on the kernel alone, ``sample`` draws."""
