"""Privacy accounts beside models: checked before a private support goes out, stored after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from modelkin._validation import check_attributes
from modelkin.client._protocol import models
from modelkin.client._protocol.calls.call import Call
from modelkin.client._protocol.calls.flows import Flow
from modelkin.core.privacy.account import ATTRIBUTE, PrivacyAccount
from modelkin.core.support import Support
from modelkin.errors import ApiError, InvalidParameter
from modelkin.types.models import ModelInfo
from modelkin.types.paging import UNCHANGED

__all__ = ["put_with_account", "record", "with_account"]


def put_with_account(
    space: str, model: str, support: Support, account: PrivacyAccount | None, put: Flow[ModelInfo]
) -> Flow[ModelInfo]:
    """Check that an account pays for a support, then store the support; None skips the check.

    Args:
        space: the name of the space that receives the model.
        model: the model's name.
        support: a private support, which ``put`` stores.
        account: the account, whose last entry pays for the support.
        put: the flow that stores the support.

    Raises:
        InvalidParameter: the account does not go on from the one beside the model.
    """
    if account is not None:
        yield from _check(space, model, support, account)
    return (yield from put)


def _check(space: str, model: str, support: Support, account: PrivacyAccount) -> Flow[None]:
    if not account.spent:
        raise _refusal("the account has spent nothing: call account.spend(epsilon, delta) first")
    try:
        known: ModelInfo = yield models.get(space, model)
    except ApiError as error:
        if error.problem_code != "model_not_found":
            raise
        return
    stored = PrivacyAccount.of_attributes(known.attributes)
    if stored is None:
        return
    if account.spent[: len(stored.spent)] != stored.spent:
        raise _refusal(
            f"the account has {len(account.spent)} entries that do not go on from the "
            f"{len(stored.spent)} stored beside {model!r}: start from "
            f"PrivacyAccount.of_attributes(client.models.get(...).attributes)"
        )
    if account.spent == stored.spent and known.digest != support.digest:
        raise _refusal(
            f"all {len(stored.spent)} entries of the account have paid for other supports of "
            f"{model!r}: call account.spend(epsilon, delta) before each"
        )


def _refusal(message: str) -> InvalidParameter:
    return InvalidParameter(f"{message}. Nothing was sent", field="privacy")


def with_account(
    attributes: Mapping[str, Any] | None, account: PrivacyAccount | None
) -> Mapping[str, Any] | None:
    """Attributes that replace those of a model, with the account if both are given."""
    if attributes is None:
        return None
    checked = check_attributes(attributes)
    return checked if account is None else {**checked, ATTRIBUTE: account.to_attribute()}


def record(space: str, stored: ModelInfo, account: PrivacyAccount | None) -> Call[ModelInfo] | None:
    """Stores an account among the attributes of its model; None if it is stored already."""
    if account is None or PrivacyAccount.of_attributes(stored.attributes) == account:
        return None
    merged = {ATTRIBUTE: account.to_attribute()}
    call = models.update(space, stored.model, None, None, UNCHANGED, UNCHANGED, None, merged)
    return replace(call, request=replace(call.request, idempotent=True))
