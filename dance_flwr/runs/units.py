"""Counts, durations and sizes as people read them."""


def duration(seconds: float) -> str:
    """Return a duration in seconds, minutes or hours, rounded."""
    for unit, length in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"


def size(count: float) -> str:
    """Return a number of bytes in B, kB, MB or GB, rounded."""
    for unit, length in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= length:
            return f"{count / length:.3g} {unit}"
    return f"{count:.0f} B"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, whose plural ends in "s" unless it is given.

    Examples
    --------
    >>> counted(1, "round"), counted(1200, "node"), counted(0, "entry", "entries")
    ('1 round', '1,200 nodes', '0 entries')
    """
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"
