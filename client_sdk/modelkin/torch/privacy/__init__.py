"""What averaging in shards shows: attacks on one simulated round of the caller's own network."""

from modelkin.torch.privacy.report import (
    InversionRow,
    MembershipRow,
    PrivacyReport,
    SizeRow,
    privacy_report,
)

__all__ = ["InversionRow", "MembershipRow", "PrivacyReport", "SizeRow", "privacy_report"]
