"""Names of strangers in sentences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkin.core.fingerprints.relations.wording import plain


@pytest.mark.parametrize("name", ["acme/ünï", "組織/模型", "org/модель", "a b"])
def test_letters_of_any_script_stand_as_they_are(name: str) -> None:
    """As the link beside the sentence shows them."""
    assert name == plain(name)


@given(st.text(max_size=300))
def test_what_is_not_seen_is_escaped(name: str) -> None:
    """Control characters, marks of direction and halves of characters; and no name is long."""
    shown = plain(name)
    assert shown.isprintable()
    assert len(shown) <= 80 * len(r"\U0001d173")
    if name.isprintable() and len(name) <= 80:
        assert name == shown


def test_the_beginning_of_a_long_name_is_shown() -> None:
    """With a mark that there is more."""
    assert "x" * 77 + "..." == plain("x" * 81)
