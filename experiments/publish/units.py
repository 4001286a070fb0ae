"""Times with their units, as pages show them."""

from __future__ import annotations

UNITS = (("ms", 1e-3), ("s", 1.0), ("min", 60.0), ("h", 3600.0), ("days", 86400.0), ("years", 3.156e7))


def duration(seconds: float, digits: int = 2) -> str:
    """Return a time with its unit, as a power of ten if it is absurdly long.

    Examples
    --------
    >>> duration(0.0065), duration(1.9), duration(110.0), duration(17_685.0), duration(2.6e13)
    ('6.5 ms', '1.9 s', '110 s', '4.9 h', '10^5 years')
    """
    unit, length = next((u for u in reversed(UNITS) if seconds >= (1 if u[0] == "s" else 2) * u[1]), UNITS[0])
    value = seconds / length
    if value > 1e4:
        return f"10^{len(f'{value:.0f}') - 1} {unit}"
    return f"{value:.{digits}g} {unit}" if value < 100 else f"{value:,.0f} {unit}"
