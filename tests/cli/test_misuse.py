"""Command lines that click cannot read are refused in one line that says what is next, with exit code 2."""

from __future__ import annotations

import pytest

from weft import cli


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("rn train.py", "a command of weft must be known, got 'rn'; did you mean run?"),
        ("model lst", "a command of weft model must be known, got 'lst'; did you mean list?"),
        ("job qqq", "a command of weft job must be known, got 'qqq'; see weft job --help"),
        ("topology --hst a", "an option of weft topology must be known, got '--hst'; did you mean --hosts?"),
        ("ledger --qqqqqq", "an option of weft ledger must be known, got '--qqqqqq'; see weft ledger --help"),
        ("scale", "weft scale must be given RUN, got none; write 'weft scale [OPTIONS] RUN', or see"),
        ("export model.py:make", "weft export must be given --output, got none; write 'weft export"),
        ("topology --hosts", "--hosts must have a value, got none; write --hosts VALUE"),
        (
            "topology a b",
            "weft topology must be written 'weft topology [OPTIONS]', got 'a b' as well; leave it",
        ),
        ("run --engine shh train.py", "got 'shh'; did you mean ssh?"),
        (
            "run --engine pigeon train.py",
            "--engine must be one of auto, local, ssh, mpi, slurm, kubernetes, pods",
        ),
    ],
)
def test_what_click_refuses_is_told_in_one_line(
    typed: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.call(typed.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("weft: ")
    assert said in err
    assert err.count("\n") == 1


def test_every_verb_stands_in_help_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.call(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    first_words = [line.split()[0] for line in lines if line.startswith("  ") and line.strip()]
    assert all(first_words.count(verb) == 1 for verb in cli.VERBS)
    assert len(cli.VERBS) == sum(map(len, cli.SECTIONS.values()))
