"""Counts, durations and sizes as people read them."""

from dance_flwr.errors import counted


def duration(seconds: float) -> str:
    """Return a duration in seconds, minutes or hours, rounded."""
    for unit, length in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"


def pace(seconds: float, rounds: int) -> str:
    """Return what all rounds took together and one on average, without the start of the run."""
    return f"{duration(seconds)} in {counted(rounds, 'round')}, {duration(seconds / rounds)} each"


def size(count: float) -> str:
    """Return a number of bytes in B, kB, MB or GB, rounded."""
    for unit, length in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= length:
            return f"{count / length:.3g} {unit}"
    return f"{count:.0f} B"


def ordinal(place: int) -> str:
    """Return "first", "second", "third", and from there on "4th"."""
    words = ("first", "second", "third")
    if place <= len(words):
        return words[place - 1]
    teens = place % 100 in (11, 12, 13)
    return f"{place}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(place % 10, 'th')}"
