"""The cell of words: what is said of derivatives is counted as right, open or wrong."""

from __future__ import annotations

import pytest

from studies.lines.gates import gates_of_lines
from studies.lines.guises import rounded
from studies.lines.networks.others import GRAPH
from studies.lines.results import WORDS
from studies.lines.section import section
from studies.lines.trained import Trained
from studies.lines.words.answers import Answer, answers, counted
from studies.lines.words.cases import Case
from studies.lines.words.section import ALL
from studies.lines.zoo import Zoo


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A graph network whose children are trained for no step."""
    return Trained(GRAPH, Zoo(tmp_path_factory.mktemp("zoo")), longest=0)


def test_each_derivative_is_judged_at_two_scales(untrained: Trained) -> None:
    """Roundings have their bits, and what is stored in sixteen was changed; of children that were
    trained for no step all lines are the base's, so that it is wrong to call them so.
    """
    made = [rounded(untrained.base(), "Q8_0"), rounded(untrained.base(), "Q4_0")]
    found = list(answers(untrained, made))
    kinds = {(each.case.name, each.scale): each.kind for each in found}
    words = {each.case.name: each.words for each in found}
    assert 2 * len(words) == len(kinds) == len(found)
    for name in ("Q8_0", "Q4_0", "fine-tune, then Q8_0"):
        assert {"quantised"} == words[name]
    assert {"changed"} == words["Q4_0, in 16 bits"]
    assert "wrong" == kinds["average of 0.5 of the base and the fine-tune, in 16 bits", "default"]
    assert {"consistent"} == {
        each.verdict for each in found if "noise of 0.2" not in each.case.name
    }
    assert "consistent" not in {each.of_stranger for each in found}


@pytest.mark.parametrize(
    ("words", "kind"),
    [({"changed"}, "right"), ({"shares"}, "open"), (set(), "open"), ({"copy", "changed"}, "wrong")],
)
def test_a_wrong_word_misses_a_gate(words: set[str], kind: str) -> None:
    """One that leaves it open does not."""
    case = Case("light", {}, 16, frozenset({"changed"}))
    answer = Answer(case, "default", frozenset(words), "consistent", "mismatch")
    assert kind == answer.kind
    figures = {ALL: {name: float(count) for name, count in counted(answer).items()}}
    assert "| all | 1 |" in "\n".join(section({WORDS: figures}))
    gates = [gate for gate in gates_of_lines({WORDS: figures}) if gate.figure.startswith("words")]
    assert [kind != "wrong", True, True] == [gate.met for gate in gates]
