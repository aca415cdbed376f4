"""Command lines that once ended in a traceback, were accepted, or ended in silence: each is refused in one sentence."""

from __future__ import annotations

import shlex
from importlib import import_module
from pathlib import Path

import pytest
from testing.wrong_commands.calling import file_states
from testing.wrong_commands.scratch import make_scratch

from weft import cli

LIGHT = [
    ("run -n 99999999999999999999 train.py", "--workers must be a whole number between 1 and 65536"),
    ("run -n 1000000 --dry-run train.py", "--workers must be a whole number between 1 and 65536"),
    ("run --grace nan train.py", "--grace must be a number of seconds between 0 and 1000000, got 'nan'"),
    ("run --grace inf train.py", "--grace must be a number of seconds between 0 and 1000000, got 'inf'"),
    ("run --lost-after nan train.py", "--lost-after must be a number of seconds above 0"),
    ("run --interface nocard train.py", "--interface must be a card of"),
    ("serve model.onnx --port -1", "--port must be a whole number between 0 and 65535, got '-1'"),
    ("serve model.onnx --grpc-port 99999", "--grpc-port must be a whole number between 0 and 65535"),
    ("serve model.onnx --tls-cert nope --tls-key nope", "must be a file that can be read, got nope"),
    ("serve model.onnx --ready-file no/where", "--ready-file must be a file that can be written"),
    ("serve keys add ann --keys no/where.json", "--keys must be a file that can be written"),
    ("serve model.onnx --fetch-from abc", "--fetch-from must be a network of addresses, got 'abc'"),
    ("serve model.onnx --poll-s 0", "--poll-s must be a number of seconds above 0"),
    ("serve model.onnx --poll-s -1", "--poll-s must be a number of seconds above 0"),
    ("serve model.onnx --drain-s -1", "--drain-s must be a number of seconds between 0"),
    ("serve model.onnx --set UNKNOWN:", "--set must be of the form NAME:K=V"),
    ("client status http://h:99999", "URL must be the URL of a server, http or https"),
    ("client status 'http://[::1'", "URL must be the URL of a server, http or https"),
    ("model list --store notes.txt", "--store must be a folder, got notes.txt (Not a directory)"),
    ("export nets.py:net -o new.onnx --shape 3 --rtol nan", "--rtol must be a number between 0 and 1000000"),
    ("scale control-empty", "control-empty/elastic/control.json: it must have the field hosts, got none"),
    ("scale control-list", "control-list/elastic/control.json: it must be a mapping, got a list"),
    ("scale control-numbers", "control-numbers/elastic/control.json: hosts[0] must be a mapping"),
]
HEAVY = [
    ("learn explain empty-file", "empty-file"),
    ("client status https://127.0.0.1:1 --ca notes.txt", "notes.txt"),
    ("serve model.onnx --port 0 --grpc-port 0 --tls-cert notes.txt --tls-key notes.txt", "--tls-cert"),
    ("serve model.onnx --port 0 --no-grpc --tls-cert notes.txt --tls-key notes.txt", "--tls-cert"),
    ("serve =model.onnx --port 0", "a model's name must be letters"),
    ("export nets.py:net -o new.onnx --shape 99999999999,99999999999", "got '99999999999,99999999999'"),
    ("learn explain model.pkl --target y", "--target must come with a TABLE"),
]


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("light")
    make_scratch(folder, heavy=False)
    for name, text in (("empty", "{}"), ("list", "[]"), ("numbers", '{"hosts": [1, 2]}')):
        (folder / f"control-{name}" / "elastic").mkdir(parents=True)
        (folder / f"control-{name}" / "elastic" / "control.json").write_text(text)
    return folder


@pytest.fixture(scope="module")
def heavy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("heavy")
    import_module("cv2")  # sets LD_LIBRARY_PATH when it is imported
    make_scratch(folder, heavy=True)
    (folder / "empty-file").touch()
    return folder


@pytest.mark.parametrize(("typed", "said"), LIGHT)
def test_a_noted_command_is_refused(
    typed: str, said: str, light: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(light)
    assert_refused(typed, said, capsys)


@pytest.mark.long
@pytest.mark.xdist_group("noted commands")
@pytest.mark.parametrize(("typed", "said"), HEAVY)
def test_a_noted_command_about_models_is_refused(
    typed: str, said: str, heavy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(heavy)
    assert_refused(typed, said, capsys)


def assert_refused(typed: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The command line ends with exit code 2 and a sentence, and the folder is as before."""
    before = file_states(Path())
    assert cli.call(shlex.split(typed)) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.startswith("weft: ")
    assert "Traceback" not in told
    assert file_states(Path()) == before
