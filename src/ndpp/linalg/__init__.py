"""Functions of arrays: the mathematics that all other packages use."""
