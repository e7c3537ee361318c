"""The public names of the package, and what importing it costs."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

import modelkin
import modelkin.types

PUBLIC = """
    Acknowledgement Anatomy ApiError ApiKey Assignment AsyncClient AuthenticationError
    BadRequestError Banding CheckpointItem PushedCheckpoint PushedCheckpoints
    Base Blinding BlockAngles BulkItem Catalogue
    BulkResult BulkSummary Client ClientClosed Cluster Clustering ClusteringInfo ClusteringPolicy
    ClusterQuality ConflictError ConnectionFailed Delivery DeliveryAttempt Donor DonorExplanation
    DeclaredBase Donors DuplicateModel DuplicateWeights
    FewSamplesWarning Fingerprint FingerprintItem FingerprintLineage Graph GraphEdge GraphNode
    HttpsFile HubEvent HubFile Importance
    InvalidInput JobCancelled JobFailed JobInfo JobProgress Kin Layout Learngene LearngeneInfo
    LearngeneMismatch LearngeneTensor LikelyBase LineEvidence LineRelation Lineage LineageFinding
    LineageLink LineageTotals MediaTypeError Merge Merged
    MergeInfo MergeParty MissingExtra MlflowFile ModelInfo ModelMap ModelkinError
    ModelkinVersionWarning
    Neighbor Neighbors NotFoundError Origin Overlap Parent PermissionDeniedError PreconditionError
    PrivacyAccount PrivacyBudgetExceeded PublicNeighbor PublicNeighbors PublicSpace PublicSpaceInfo
    RateLimitError Report ReportInfo ReportPolicy RequestTooLargeError Revision Revisions Selection
    ServerError Signature SignatureSpec
    SimilarityBaseline SimilarityMatrix Sketch SmallSupportWarning Source SpaceInfo SpaceMismatch
    SpaceTensors SplitClient StatedWeights
    StopList StoredFingerprint Subscription Subspace SubspaceSpec Support SupportSize
    SupportSizePolicy
    TensorAnatomy TensorOverlap TensorSource TensorSpec TensorSummary UNCHANGED
    UnprocessableEntityError
    UnstableSupportWarning
    Vote __version__ affinity anatomy fit_subspace layout_of ordered_similarity principal_angles
    private_support select select_signature
    select_support similarity stability
"""


def run(code: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()


def test_the_public_names_are_these() -> None:
    """A name enters or leaves the public list only on purpose."""
    assert sorted(PUBLIC.split()) == sorted(modelkin.__all__)
    assert all(hasattr(modelkin, name) for name in modelkin.__all__)


def test_every_public_type_is_in_types() -> None:
    """modelkin.types has all values of the client, beside those that modelkin itself exports."""
    assert set(modelkin.types.__all__) <= vars(modelkin.types).keys()
    shared = set(modelkin.__all__) & vars(modelkin.types).keys()
    assert (
        {"Neighbors", "JobInfo", "HubEvent", "UNCHANGED"} <= shared <= set(modelkin.types.__all__)
    )
    assert all(getattr(modelkin, name) is getattr(modelkin.types, name) for name in shared)


def test_importing_needs_no_extra() -> None:
    """import modelkin loads neither torch nor numba, nor any other extra."""
    extras = "{'torch', 'numba', 'pyroaring', 'datasketch', 'pandas'}"
    assert "[]" == run(f"import sys, modelkin; print(sorted({extras} & set(sys.modules)))")


def test_importing_loads_neither_clients_nor_their_values() -> None:
    """import modelkin leaves the clients, their values and httpx for their first use."""
    modules = "{'httpx', 'msgspec', 'modelkin.client', 'modelkin.types'}"
    code = f"import sys, modelkin; print(sorted({modules} & set(sys.modules)), modelkin.Neighbors)"
    assert "[] <class 'modelkin.types.search.Neighbors'>" == run(code)


@pytest.mark.slow
def test_layout_of_comes_with_torch() -> None:
    """modelkin.layout_of reads a torch model as modelkin.torch does."""
    code = "import modelkin, torch\nprint(modelkin.layout_of(torch.nn.Linear(3, 2)).to_json())"
    assert ("[{'name': 'weight', 'shape': [2, 3]}, {'name': 'bias', 'shape': [2]}]") == run(code)


@pytest.mark.slow
def test_without_torch_layout_of_says_what_to_install() -> None:
    """Where torch is missing everything imports, and calling layout_of names the extra."""
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from modelkin import *\n"
        "try: layout_of(None)\n"
        "except MissingExtra as error: print(error)"
    )
    assert "pip install 'modelkin[torch]'" in run(code)


def test_the_version_is_the_installed_one() -> None:
    """The version in the code is the version in the distribution's metadata."""
    assert importlib.metadata.version("modelkin") == modelkin.__version__
