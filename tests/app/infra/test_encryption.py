"""Secrets at rest: only the key reads them."""

from __future__ import annotations

import logging
import stat
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from pydantic import ValidationError

from app.infra.errors import SecretKeyMissing, Unavailable
from app.infra.storage.encryption import Secrets
from app.infra.storage.encryption_keys import parse_keys
from app.setting_messages import validation_messages
from app.settings import Settings
from tests.support.servers import forkserver

OLD, NEW = Fernet.generate_key().decode(), Fernet.generate_key().decode()


def test_a_secret_comes_back_and_is_not_to_be_seen() -> None:
    """What is stored says nothing of the secret, and differs each time."""
    secrets = Secrets((OLD,), None)
    one, two = secrets.encrypt("geheim é"), secrets.encrypt("geheim é")
    assert ("geheim é", "geheim é") == (secrets.decrypt(one), secrets.decrypt(two))
    assert one != two
    assert b"geheim" not in one
    assert OLD not in repr(secrets)


def test_keys_rotate() -> None:
    """The first key encrypts, all decrypt; what was renewed needs the old one no more."""
    stored = Secrets((OLD,), None).encrypt("geheim")
    both = Secrets((NEW, OLD), None)
    assert "geheim" == both.decrypt(stored)
    assert "geheim" == Secrets((NEW,), None).decrypt(both.renew(stored))
    with pytest.raises(Unavailable, match="another key"):
        Secrets((NEW,), None).decrypt(stored)


def test_what_was_changed_is_refused() -> None:
    """A damaged secret is refused, and the error does not show it."""
    secrets = Secrets((OLD,), None)
    stored = bytearray(secrets.encrypt("geheim"))
    stored[20] ^= 1
    with pytest.raises(Unavailable, match="cannot be decrypted") as error:
        secrets.decrypt(bytes(stored))
    assert "geheim" not in str(error.value)


def test_the_embedded_store_makes_its_key(tmp_path: Path) -> None:
    """A key is made with the first secret, for its owner alone, and stays."""
    file = tmp_path / "secret.key"
    secrets = Secrets((), file)
    assert not file.exists()
    stored = secrets.encrypt("geheim")
    assert 0o600 == stat.S_IMODE(file.stat().st_mode)
    assert "geheim" == Secrets((), file).decrypt(stored)
    assert "geheim" == Secrets((NEW,), file).decrypt(stored)
    assert [file] == list(tmp_path.iterdir())


def test_processes_that_come_at_once_make_one_key(tmp_path: Path) -> None:
    """The first process makes the key for all of them."""
    with ProcessPoolExecutor(2, forkserver.CONTEXT) as pool:
        stored = list(pool.map(_encrypt, [tmp_path / "secret.key"] * 6))
    assert ["geheim"] * 6 == [Secrets((), tmp_path / "secret.key").decrypt(s) for s in stored]
    assert 1 == len(list(tmp_path.iterdir()))


def _encrypt(file: Path) -> bytes:
    return Secrets((), file).encrypt("geheim")


def test_without_a_key_nothing_is_stored() -> None:
    """Where processes share no folder, a secret asks for the setting, by its name."""
    with pytest.raises(SecretKeyMissing, match="MODELKIN_ENCRYPTION_KEYS"):
        Secrets((), None).encrypt("geheim")


def test_without_its_key_nothing_is_read() -> None:
    """A key that is missing where something is stored is an outage, and no conflict."""
    stored = Secrets((NEW,), None).encrypt("geheim")
    with pytest.raises(Unavailable, match="MODELKIN_ENCRYPTION_KEYS is not set"):
        Secrets((), None).decrypt(stored)


def test_a_broken_file_is_not_replaced(tmp_path: Path) -> None:
    """A key that cannot be read is an error that names its file: another one would open nothing."""
    file = tmp_path / "secret.key"
    file.write_text("nonsense")
    with pytest.raises(Unavailable, match="the file of the key of secrets holds no key"):
        Secrets((), file).encrypt("geheim")
    assert "nonsense" == file.read_text()


@pytest.mark.parametrize(
    "text",
    [" ", "short", f"{OLD},", f"{OLD},x", "x" * 31],
    ids=["blank", "short", "empty", "x", "31"],
)
def test_a_setting_that_is_no_key_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service does not start with it, and says which it is without showing it."""
    monkeypatch.setenv("MODELKIN_ENCRYPTION_KEYS", text)
    with pytest.raises(ValidationError) as error:
        Settings(_env_file=None)
    (line,) = validation_messages(error.value)
    assert line.startswith("MODELKIN_ENCRYPTION_KEYS: key ")
    assert OLD not in line


def test_any_long_text_is_a_key() -> None:
    """Hexadecimal digits, say; the same text opens what it closed, and no other does."""
    text, other = "0123456789abcdef" * 4, "0123456789abcdef" * 3 + "0123456789abcdeg"
    stored = Secrets(parse_keys(text), None).encrypt("geheim")
    assert "geheim" == Secrets(parse_keys(f"{NEW},{text}"), None).decrypt(stored)
    with pytest.raises(Unavailable):
        Secrets(parse_keys(other), None).decrypt(stored)


def test_settings_hide_their_keys(caplog: pytest.LogCaptureFixture) -> None:
    """Printed or logged settings show no key."""
    settings = Settings(_env_file=None, encryption_keys=f"{NEW}, {OLD}")
    with caplog.at_level(logging.INFO):
        logging.getLogger("test").info("%s %r", settings, settings)
    assert NEW not in caplog.text
    assert (NEW, OLD) == settings.encryption_key_list == parse_keys(f"{NEW},{OLD}")
