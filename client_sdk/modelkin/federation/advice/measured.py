"""Federations of 20 clients, trained in every way: structures and accuracies.

``python -m benchmarks.federation.advice`` has written this module.
"""

from __future__ import annotations

from typing import Final

from modelkin.federation.advice.federations import Measured

__all__ = ["MEASURED"]

MEASURED: Final = (
    Measured(
        name="labels in four groups",
        kappa=0.481,
        silhouette=0.662,
        groups=0.2,
        one_model=0.628,
        alone=0.978,
        by_groups=0.988,
        mixed=0.959,
        personal=0.964,
        beside=0.988,
    ),
    Measured(
        name="labels in four groups, beside 40% of any",
        kappa=0.626,
        silhouette=0.516,
        groups=0.233,
        one_model=0.812,
        alone=0.694,
        by_groups=0.753,
        mixed=0.858,
        personal=0.662,
        beside=0.819,
    ),
    Measured(
        name="labels that mean other things in four groups",
        kappa=0.798,
        silhouette=0.293,
        groups=0.2,
        one_model=0.306,
        alone=0.809,
        by_groups=0.905,
        mixed=0.38,
        personal=0.806,
        beside=0.902,
    ),
    Measured(
        name="two of ten labels swapped",
        kappa=0.837,
        silhouette=0.0,
        groups=0.05,
        one_model=0.763,
        alone=0.816,
        by_groups=0.865,
        mixed=None,
        personal=None,
        beside=None,
    ),
    Measured(
        name="images turned in four ways",
        kappa=0.619,
        silhouette=0.677,
        groups=0.1,
        one_model=0.54,
        alone=0.817,
        by_groups=0.905,
        mixed=0.656,
        personal=0.7,
        beside=0.9,
    ),
    Measured(
        name="images in four styles",
        kappa=0.513,
        silhouette=0.735,
        groups=0.2,
        one_model=0.473,
        alone=0.671,
        by_groups=0.788,
        mixed=None,
        personal=None,
        beside=None,
    ),
    Measured(
        name="few labels each, Dir(0.1)",
        kappa=0.442,
        silhouette=0.384,
        groups=0.5,
        one_model=0.818,
        alone=0.948,
        by_groups=0.853,
        mixed=0.905,
        personal=0.943,
        beside=0.945,
    ),
    Measured(
        name="mixed labels, Dir(0.3)",
        kappa=0.55,
        silhouette=0.136,
        groups=0.233,
        one_model=0.903,
        alone=0.898,
        by_groups=0.888,
        mixed=0.915,
        personal=0.895,
        beside=0.903,
    ),
    Measured(
        name="even labels, IID",
        kappa=0.821,
        silhouette=0.0,
        groups=0.05,
        one_model=0.925,
        alone=0.821,
        by_groups=0.908,
        mixed=None,
        personal=None,
        beside=None,
    ),
)
