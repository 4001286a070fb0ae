"""Demonstrations, tables and figures. These modules may print; the library below them does not."""
