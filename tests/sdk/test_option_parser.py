"""The names of options, which argparse keeps to itself."""

from __future__ import annotations

from modelkin._option_parser import OptionParser


def test_a_parser_names_the_options_of_its_groups() -> None:
    """Those of groups within groups, too, so that a near name can be offered for each."""
    parser = OptionParser(add_help=False)
    parser.add_argument("models", nargs="*")
    parser.add_argument("-y", "--yes")
    group = parser.add_argument_group("more")
    group.add_argument("--of-a-group")
    group.add_mutually_exclusive_group().add_argument("--either")
    parser.add_mutually_exclusive_group(required=True).add_argument("--or")
    assert {"-y", "--yes", "--of-a-group", "--either", "--or"} == parser.option_names
