"""Draws without a generator: a seed and a number give the same fraction every time and everywhere.

Pure, so that workers that share nothing draw alike, and a test can repeat what it saw.
Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014 (SplitMix64).
"""

_MASK = (1 << 64) - 1


def fraction(seed: int, number: int = 0) -> float:
    """Return one of 2**53 fractions, above 0 and below 1, for a seed and a number; any integers."""
    mixed = (seed + (number + 1) * 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return (((mixed ^ (mixed >> 31)) >> 11) + 0.5) / 9007199254740992.0
