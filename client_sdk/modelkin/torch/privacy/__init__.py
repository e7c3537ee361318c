"""The privacy report of averaging in shards: one simulated round of a network, attacked."""

from modelkin.torch.privacy.report import (
    MembershipRow,
    PrivacyReport,
    SizeRow,
    privacy_report,
)

__all__ = ["MembershipRow", "PrivacyReport", "SizeRow", "privacy_report"]
