"""Which heads of model cards are no YAML: as its parser has it."""

from __future__ import annotations

import pytest
import yaml

from modelkin.checkpoints.catalogues.front_matter import broken_line


@pytest.mark.parametrize(
    "head",
    [
        "license: mit\ntags:\n- a\n- b",
        "tags: [a,\nb\n]\nlicense: mit",
        "tags:\n  - a\n  - 'it''s: b' # c: d",
        "text: |\n  a: b: c\n  d [\nlicense: mit",
        "model-index:\n- name: x\n  results:\n  - task:\n      type: a\n      args: {b: c, d: [e]}",
        "widget:\n- text: 'Hello: you'\n- text: >-\n    a: b: c\n  src: http://d/e",
        "title: many words\n  go on here\n'a key': b\n? c\n: d",
        "a: &x b\nc: *x\nd: ''\ne:\n# f: g: h\n",
    ],
)
def test_what_is_read(head: str) -> None:
    """Forms that cards have, and others that are rare."""
    assert isinstance(yaml.safe_load(head), dict)
    assert broken_line(head.splitlines()) is None


@pytest.mark.parametrize(
    ("head", "line"),
    [
        ("license: mit\nbase_model: [unclosed\ntags: a", 2),
        ("license: mit\ntitle: Bees: a model", 2),
        ("license: mit\nbase_model: org/base\n  tags: a", 3),
        ('title: "unclosed\nlicense: mit', 1),
        ("\tlicense: mit", 1),
        ("license: @mit", 1),
        ("license: mit\nbase_model: - org/base", 2),
        ("license: mit\nno field\ntags: a", 2),
    ],
)
def test_what_is_broken(head: str, line: int) -> None:
    """The line is that where the fault begins."""
    with pytest.raises(yaml.YAMLError):
        yaml.safe_load(head)
    assert line == broken_line(head.splitlines())
