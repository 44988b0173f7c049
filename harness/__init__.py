"""Judge, time and rank GPU-kernel competition submissions honestly."""

__version__ = "0.2.0"
