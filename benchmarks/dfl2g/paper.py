"""The paper's figures that stand beside ours.

Source: "DFL2G: dynamic agnostic federated learning with learngene". Its data are SVHN, CIFAR-10 and
CIFAR-100, its network is ResNet-18, and bytes are uploads in GB.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "CEF",
    "COMM",
    "DIRICHLET",
    "EPSILONS",
    "NEWCOMERS",
    "OURS",
    "SETTINGS",
    "TARGETS",
    "ABLATION",
    "CLUSTERS",
    "resnet18_share",
]

OURS: Final = "ours"

SETTINGS: Final = (
    "SVHN, s = 4", "SVHN, s = 5", "CIFAR-10, s = 4", "CIFAR-10, s = 5", "CIFAR-100, s = 10",
    "CIFAR-100, s = 20",
)  # fmt: skip

COMM: Final = {
    "FedAvg": (15.41, 14.21, 12.04, 15.00, 13.30, 13.39),
    "PartialFed": (4.32, 3.98, 3.37, 4.20, 4.33, 3.74),
    "FedFina": (11.38, 10.49, 8.89, 11.07, 11.41, 9.84),
    "FedLP": (11.65, 10.93, 9.41, 12.24, 11.90, 10.89),
    "FedLPS": (3.34, 3.93, 4.00, 3.49, 3.12, 3.21),
    "Flearngene": (6.61, 6.09, 5.16, 6.43, 5.68, 5.71),
    OURS: (2.74, 2.62, 3.54, 4.28, 3.08, 3.02),
}
"""Table 1: uploads in GB by method, in the order of :data:`SETTINGS`."""

CEF: Final = {
    "FedAvg": (0.1675, 0.1580, 0.1488, 0.1885, 0.2574, 0.3590),
    "PartialFed": (0.0507, 0.0488, 0.0576, 0.0633, 0.0869, 0.1026),
    "FedFina": (0.1459, 0.1403, 0.1347, 0.1814, 0.2574, 0.3165),
    "FedLP": (0.1264, 0.1215, 0.1161, 0.1575, 0.2298, 0.2985),
    "FedLPS": (0.0377, 0.0452, 0.0527, 0.0512, 0.1698, 0.1550),
    "Flearngene": (0.0789, 0.0776, 0.0734, 0.0990, 0.1249, 0.1870),
    OURS: (0.0323, 0.0321, 0.0525, 0.0571, 0.0712, 0.1011),
}
"""Table 1: uploads by accuracy, likewise."""

TARGETS: Final = {
    "FedAvg": "0.49", "PartialFed": "0.14", "FedFina": "never", "FedLP": "2.09",
    "FedLPS": "never", "Flearngene": "1.07", OURS: "0.06",
}  # fmt: skip
"""Table 2: GB until an accuracy of 90% on SVHN, s = 5."""

NEWCOMERS: Final = {
    "PartialFed": (91.67, 91.19, 63.53, 61.75, 53.24, 35.43),
    "FedFina": (87.81, 86.84, 57.21, 51.81, 48.47, 34.94),
    "FedLP": (90.70, 88.55, 64.61, 63.24, 49.30, 31.51),
    "FedLPS": (79.17, 77.32, 52.32, 45.85, 40.78, 31.45),
    "Flearngene": (88.85, 89.52, 63.60, 57.83, 48.55, 33.73),
    OURS: (93.83, 92.91, 65.46, 63.06, 52.44, 35.49),
}
"""Table 3: newcomers' accuracy in percent, in the order of :data:`SETTINGS`."""

DIRICHLET: Final = {
    "FedAvg": ((15.41, 0.2303), (15.41, 0.216)),
    "PartialFed": ((4.32, 0.0668), (4.32, 0.081)),
    "FedFina": ((11.38, 0.1839), (11.38, 0.233)),
    "FedLP": ((12.58, 0.1773), (12.07, 0.167)),
    "FedLPS": ((4.83, 0.1042), (4.73, 0.186)),
    "Flearngene": ((6.60, 0.1061), (6.61, 0.129)),
    OURS: ((4.03, 0.0663), (1.69, 0.032)),
}
"""Table 6: Comm and Cef on CIFAR-10 by Dirichlet(.1) and (.5)."""

ABLATION: Final = {"without L_gen": 93.66, "without L_elg": 93.55, "both": 93.83}
"""Table 4 on SVHN, s = 4, in percent."""

CLUSTERS: Final = {1: 64.16, 4: 65.46}
"""Table 5 on CIFAR-10, s = 4, in percent."""

EPSILONS: Final = {0.1: 65.17, 0.5: 65.46, 0.9: 63.11}
"""Table 5, likewise."""


def resnet18_share(*, stem: int = 3, classes: int = 10) -> float:
    """The last four convolutions of ResNet-18 as a share of its parameters.

    Args:
        stem: the side of the first kernel: 3 for images of 32 x 32, 7 as published.
        classes: of the last layer.

    Source: He et al., "Deep residual learning for image recognition", 2016; four stages of two
    blocks, of 64 to 512 channels, with batch normalisation and without biases of convolutions.
    """
    total = 3 * 64 * stem**2 + 2 * 64 + 512 * classes + classes
    last, before = 0, 64
    for channels in (64, 128, 256, 512):
        last = 9 * before * channels + 3 * 9 * channels**2
        total += last + 4 * 2 * channels
        if channels != before:
            total += before * channels + 2 * channels
        before = channels
    return last / total
