"""Records of measurements (README.md), what makes them (measure) and what pages show of them (pages)."""

from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
