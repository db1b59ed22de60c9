"""Colours that everybody tells apart, and ink that is read on them."""

from __future__ import annotations

from itertools import combinations

import pytest

from mlxnb.records.colours import ORIGINS, PHASES, REUSED, Colour

# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
VISION = {
    "any": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deutan": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritan": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
Triple = tuple[float, float, float]


def linear(colour: str) -> Triple:
    """sRGB ``#rrggbb`` as linear light, 0–1."""
    values = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    r, g, b = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values)
    return r, g, b


def luminance(colour: str) -> float:
    r, g, b = linear(colour)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(colour: Colour) -> float:
    """As WCAG 2.2 defines it: 1 to 21."""
    high, low = sorted((luminance(colour.fill), luminance(colour.ink)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def lab(rgb: Triple) -> Triple:
    """CIE L*a*b* (D65) of linear RGB."""
    r, g, b = (min(max(value, 0.0), 1.0) for value in rgb)
    x = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505
    y = 0.2126 * r + 0.7152 * g + 0.0722 * b
    z = (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089
    f = [v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z)]
    return 116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])


def seen(colour: Colour, vision: str) -> Triple:
    rgb = linear(colour.fill)
    x, y, z = (sum(a * b for a, b in zip(row, rgb, strict=True)) for row in VISION[vision])
    return lab((x, y, z))


@pytest.mark.parametrize("name", [*ORIGINS, *PHASES])
def test_text_on_a_fill_is_read(name: str) -> None:
    assert contrast((ORIGINS | PHASES)[name]) >= 4.5


@pytest.mark.parametrize("vision", VISION)
def test_no_two_origins_look_alike(vision: str) -> None:
    found = {name: seen(colour, vision) for name, colour in ORIGINS.items()}
    for (_, one), (_, other) in combinations(found.items(), 2):
        assert sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5 > 15


def test_what_was_reused_is_an_origin_and_what_was_not_the_rest() -> None:
    assert {*ORIGINS} - {*REUSED} == {"computed", "generated"}
