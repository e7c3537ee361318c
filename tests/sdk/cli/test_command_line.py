"""The command line itself: help, mistakes, standard streams, colours, long answers, completion."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import modelkin
from modelkin.cli import main
from modelkin.cli.arguments import option_names, parser_of
from modelkin.cli.catalogue import by_name, leaves
from modelkin.cli.output import table
from modelkin.cli.style import GOOD, Styled, for_output
from tests.sdk.cli.conftest import Run

HEAD = "\x1b[1m"


class Screen(io.StringIO):
    """A standard output that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def on_screen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., str]:
    """Runs a command on a terminal, and says what that shows."""
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        screen = Screen()
        monkeypatch.setattr(sys, "stdout", screen)
        assert 0 == main(arguments)
        return screen.getvalue()

    return run


@pytest.fixture
def support_file(tmp_path: Path) -> bytes:
    """The bytes of ``m.mksp``, a support in the folder where commands run."""
    data = modelkin.Support.from_indices(range(7), 100).to_bytes()
    (tmp_path / "m.mksp").write_bytes(data)
    return data


@pytest.mark.parametrize("words", [(), ("--help",), ("help",)])
def test_alone_it_lists_all_commands(run_here: Run, words: tuple[str, ...]) -> None:
    """Every command is there with its summary, and how to go on."""
    done = run_here(*words)
    assert (0, "") == (done.returncode, done.stderr)
    for name, command in by_name().items():
        assert f"  {name} " in done.stdout
        assert command.summary in done.stdout
    assert "modelkin COMMAND --help" in done.stdout


def test_every_command_has_help(run_here: Run) -> None:
    """Its options exist, --json among them, and `help COMMAND` is the same."""
    for name, command in leaves():
        assert {"--json", "--all", "--help"} <= set(option_names(parser_of(name, command)))
    asked = run_here("jobs", "wait", "--help")
    assert asked.stdout.startswith("usage: modelkin jobs wait ")
    assert asked.stdout == run_here("help", "jobs", "wait").stdout
    actions = run_here("jobs", "--help").stdout
    assert all(action.name in actions for action in by_name()["jobs"].actions)


def test_the_version_is_a_command_too(run_here: Run) -> None:
    """As of other programs."""
    assert run_here("--version").stdout == run_here("version").stdout
    assert f"modelkin {modelkin.__version__}\n" == run_here("version").stdout


MISTAKES = {
    "command": (["neighbours"], "unknown command 'neighbours'; did you mean neighbors?"),
    "other name": (["ls"], "unknown command 'ls'; did you mean models, spaces or jobs?"),
    "audit": (["audit", "zoo"], "did you mean lineage?"),
    "delete": (["keys", "delete", "a"], "unknown action 'delete'; did you mean revoke?"),
    "remove": (["jobs", "remove", "a"], "unknown action 'remove'; did you mean cancel?"),
    "rm": (["merge", "rm", "a"], "modelkin merge: unknown action 'rm' (see modelkin merge --help)"),
    "search": (["search", "a"], "did you mean neighbors?"),
    "far": (["xyzzy"], "unknown command 'xyzzy' (see modelkin --help)"),
    "action": (["jobs", "wiat"], "modelkin jobs: unknown action 'wiat'; did you mean wait?"),
    "no action": (["learngene"], "say which of cut, average, publish, show"),
    "option": (["models", "--sapce", "x"], "unknown option '--sapce'; did you mean --space?"),
    "with a value": (["models", "--limti=3"], "unknown option '--limti'; did you mean --limit?"),
    "before": (["--all", "models"], "'--all' stands before the command"),
    "no space": (["models"], "required: --space (or set MODELKIN_SPACE)"),
    "nor model": (["show"], "required: MODEL, --space (or set MODELKIN_SPACE)"),
    "no limit": (["models", "--space", "s", "--limit", "0"], "invalid positive value: '0'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_line_names_what_may_be_meant(run_here: Run, mistake: str) -> None:
    """It is one line on standard error, or one object with --json, and the exit code 2."""
    words, message = MISTAKES[mistake]
    done = run_here(*words)
    assert (2, "", 1) == (done.returncode, done.stdout, done.stderr.count("\n"))
    assert message in done.stderr
    assert "(see modelkin" in done.stderr
    problem = json.loads(run_here(*words, "--json").stderr)
    assert "usage" == problem["code"]
    assert problem["detail"] in done.stderr


@pytest.mark.parametrize(
    "command", [name.split() for name, each in leaves() if each.name in {"rm", "remove"}]
)
@pytest.mark.parametrize("word", ["rm", "remove", "delete"])
def test_what_is_deleted_is_asked_about(run_here: Run, command: list[str], word: str) -> None:
    """By any of the words, in all groups; without a terminal only `--yes` answers."""
    said = run_here(*command[:-1], word, "--help").stdout
    assert said.startswith(f"usage: modelkin {' '.join(command)} ")
    assert "--yes" in said
    if command in (["rm"], ["spaces", "rm"]):  # they ask the service first what there is
        return
    done = run_here(*command[:-1], word, "one", "--url", "http://127.0.0.1:9")
    assert 1 == done.returncode
    assert "one" in done.stderr
    assert "there is no terminal to ask on: add --yes" in done.stderr


def test_errors_are_objects_with_json(run_here: Run) -> None:
    """An error after the command line was understood has its code and its words."""
    plain = run_here("inspect", "none")
    done = run_here("inspect", "none", "--json")
    assert (1, "") == (done.returncode, done.stdout)
    assert f"modelkin: {json.loads(done.stderr)['detail']}\n" == plain.stderr
    refused = run_here("models", "--space", "s", "--url", "http://127.0.0.1:9", "--json")
    assert "connection_failed" == json.loads(refused.stderr)["code"]


def test_inspect_says_what_a_support_covers(run_here: Run, tmp_path: Path) -> None:
    """One with gaps names the share of the parameters that it is of."""
    (tmp_path / "part").write_bytes(modelkin.Support([2, 5], 10, gaps=[(6, 10)]).to_bytes())
    assert "covers   6 of 10 parameters (60.0%)\n" in run_here("inspect", "part").stdout
    assert [[6, 10]] == json.loads(run_here("inspect", "part", "--json").stdout)["gaps"]


def test_inspect_says_that_a_support_is_ordered(run_here: Run, tmp_path: Path) -> None:
    """A file of an ordered support is described like any other, and its order is named."""
    ordered = modelkin.Support([2, 5, 7], 10, octaves=[1, 0, 1])
    for name, support in (("ordered", ordered), ("plain", ordered.unordered())):
        (tmp_path / name).write_bytes(support.to_bytes())
    assert (
        "support  3 of 10 parameters (30.00%), ordered\n" in run_here("inspect", "ordered").stdout
    )
    assert "(30.00%)\n" in run_here("inspect", "plain").stdout
    fields = [
        json.loads(run_here("inspect", name, "--json").stdout) for name in ("ordered", "plain")
    ]
    assert [True, False] == [each["ordered"] for each in fields]
    assert [ordered.digest, ordered.unordered().digest] == [each["digest"] for each in fields]


def test_the_space_of_the_environment(run_here: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """MODELKIN_SPACE stands in for --space, which wins over it."""
    monkeypatch.setenv("MODELKIN_SPACE", "B a d")
    done = run_here("models", "--url", "http://127.0.0.1:9")
    assert (1, "") == (done.returncode, done.stdout)
    assert "space name 'B a d'" in done.stderr
    done = run_here("models", "--space", "W o r s e", "--url", "http://127.0.0.1:9")
    assert "space name 'W o r s e'" in done.stderr


@pytest.mark.slow
def test_standard_input_and_output(run: Run, tmp_path: Path, support_file: bytes) -> None:
    """A dash is a file in every place, and messages name it as the stream that it is."""

    def piped(*arguments: str, data: bytes) -> subprocess.CompletedProcess[bytes]:
        line = [sys.executable, "-m", "modelkin", *arguments]
        return subprocess.run(line, input=data, capture_output=True, cwd=tmp_path, check=False)

    from_file = run("inspect", "m.mksp").stdout
    assert from_file == piped("inspect", "-", data=support_file).stdout.decode()
    broken = piped("inspect", "-", data=support_file[:-1])
    assert (1, b"") == (broken.returncode, broken.stdout)
    assert b"/" not in broken.stderr
    assert b"standard input" in piped("inspect", "-", data=b"junk").stderr


@pytest.mark.slow
def test_an_output_file_on_standard_output(run: Run, tmp_path: Path) -> None:
    """The bytes are those of the file, and the remark goes to standard error."""
    from tests.sdk.cli.files import random_tensors, save

    save(tmp_path / "m.safetensors", random_tensors())
    said = run("support", "m.safetensors", "-o", "m.mksp").stdout
    line = [sys.executable, "-m", "modelkin", "support", "m.safetensors", "-o", "-"]
    done = subprocess.run(line, capture_output=True, cwd=tmp_path, check=True)
    assert (tmp_path / "m.mksp").read_bytes() == done.stdout
    assert said.replace("m.mksp", "standard output") == done.stderr.decode()


def test_a_terminal_is_no_file(
    on_screen: Callable[..., str], capsys: pytest.CaptureFixture[str], support_file: bytes
) -> None:
    """Bytes are not written to a screen."""
    with pytest.raises(AssertionError):
        on_screen("support", "m.mksp", "-o", "-")
    assert "- is standard output, and that is this terminal" in capsys.readouterr().err


def test_colours_are_for_terminals(
    on_screen: Callable[..., str],
    run_here: Run,
    support_file: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """NO_COLOR switches them off there, FORCE_COLOR on elsewhere; the text is the same."""
    plain = run_here("inspect", "m.mksp").stdout
    assert "\x1b" not in plain
    coloured = on_screen("inspect", "m.mksp")
    assert coloured.startswith(HEAD)
    assert plain == coloured.replace(HEAD, "").replace("\x1b[0m", "")
    monkeypatch.setenv("NO_COLOR", "1")
    assert plain == on_screen("inspect", "m.mksp")
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert coloured == run_here("inspect", "m.mksp").stdout
    assert "\x1b" not in run_here("inspect", "m.mksp", "--json").stdout


def test_a_screen_gets_the_first_rows(
    on_screen: Callable[..., str], run_here: Run, tmp_path: Path
) -> None:
    """The others are counted, and --all and a pipe have them."""
    import torch

    from tests.sdk.cli.files import save

    save(tmp_path / "m.safetensors", {f"w{at:03}": torch.ones(2) for at in range(100)})
    whole = run_here("inspect", "m.safetensors").stdout.splitlines()
    assert 104 == len(whole)
    lines = on_screen("inspect", "m.safetensors").splitlines()
    assert "and 54 more lines: --all shows them" == lines[-1]
    assert 51 == len(lines)
    assert whole[4:50] == lines[4:50]
    assert len(whole) == len(on_screen("inspect", "m.safetensors", "--all").splitlines())


def test_tables_align_numbers_and_texts() -> None:
    """Numbers end in one column, texts begin in one, and letters of two columns count twice."""
    rows = [("模型", "1,234", "x", "-"), ("b", "-", Styled("yes", GOOD), "±0.1")]
    lines = ["NAME  COUNT  TEXT  ERROR", "模型  1,234  x         -", "b         -  yes    ±0.1"]
    assert lines == for_output(table(("NAME", "COUNT", "TEXT", "ERROR"), rows)).splitlines()


COMPLETED = {
    "command": (["neig"], ["neighbors"]),
    "commands": (["sou"], ["sources"]),
    "action": (["jobs", "c"], ["cancel"]),
    "options of a list": (["jobs", "--ki"], ["--kind"]),
    "options of an action": (["jobs", "wait", "--t"], ["--timeout"]),
    "options": (["push", "m.mksp", "--sig"], ["--signature-only"]),
    "nothing": (["push", "zzz"], []),
}


@pytest.mark.parametrize("case", COMPLETED)
def test_bash_completes(case: str, run_here: Run, tmp_path: Path) -> None:
    """The script, loaded by bash, offers what fits."""
    words, expected = COMPLETED[case]
    (tmp_path / "script").write_text(run_here("completion", "bash").stdout)
    quoted = " ".join(f"'{word}'" for word in ["modelkin", *words])
    line = (
        f"source ./script; COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _modelkin; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert ("", expected) == (done.stderr, done.stdout.split())


@pytest.mark.parametrize(
    ("shell", "ask"),
    [
        ("fish", "source ./script; complete -C 'modelkin jobs wait --t'"),
        (
            "zsh",
            "autoload -U compinit; compinit -D; source ./script; _modelkin_words jobs wait",
        ),
    ],
)
def test_other_shells_load_their_script(
    shell: str, ask: str, run_here: Run, tmp_path: Path
) -> None:
    """Where they are installed, they know the options of an action."""
    program = shutil.which(shell)
    script = run_here("completion", shell).stdout
    assert "--timeout" in script
    if program is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(script)
    done = subprocess.run([program, "-c", ask], capture_output=True, text=True, cwd=tmp_path)
    assert (0, "") == (done.returncode, done.stderr)
    assert "--timeout" in done.stdout


@pytest.mark.slow
def test_a_command_loads_no_others_libraries() -> None:
    """Help needs neither the client nor torch, and a question to a service needs no checkpoints."""
    code = (
        "import sys; from modelkin.cli.arguments import parse\n"
        "try: parse({words})\n"
        "except SystemExit: pass\n"
        "print(*[m for m in {modules} if m in sys.modules])"
    )

    def loaded(words: list[str], *modules: str) -> list[str]:
        line = code.format(words=words, modules=modules)
        done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True)
        return done.stdout.splitlines()[-1].split()

    assert [] == loaded(["--help"], "httpx", "msgspec", "torch", "modelkin.client")
    assert [] == loaded(
        ["jobs", "wait", "--help"], "torch", "modelkin.checkpoints", "numba", "pandas"
    )
    assert ["modelkin.client"] == loaded(["jobs", "wait", "--help"], "modelkin.client")
