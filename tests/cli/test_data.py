"""The verb `data` as a user calls it: what it prints and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlbench.cli.main import run_command
from mlbench.worker.recordio import RecordWriter, pack_image

pytest.importorskip("PIL", reason="needs Pillow")


def _tree(folder: Path) -> Path:
    for name in ("cat", "dog"):
        (folder / "train" / name).mkdir(parents=True)
        for number in range(3):
            (folder / "train" / name / f"{number}.jpg").write_bytes(b"\xff\xd8\xff" + name.encode() * number)
    return folder


def _set_with_fault(folder: Path) -> Path:
    with RecordWriter(str(folder / "train.rec"), str(folder / "train.idx")) as writer:
        writer.write(0, pack_image(0.0, 0, b"\xff\xd8\xff no image"))
    return folder


def test_import_json_reports_count_classes_and_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["data", "import", "--from", str(_tree(tmp_path / "tree")), "--out", str(tmp_path / "out"), "--json"]
    assert run_command([*argv, "--workers", "1"]) == 0
    (split,) = json.loads(capsys.readouterr().out)["splits"]
    assert split == {
        "split": "train",
        "files": [str(tmp_path / "out/train.rec")],
        "num_images": 6,
        "num_classes": 2,
        "image_bytes": 36,  # 6 x 3 bytes of magic, 2 x (0 + 3 + 6) of body
        "mean_image_bytes": 6.0,
        "rec_bytes": (tmp_path / "out/train.rec").stat().st_size,
        "num_ignored": 0,
    }


def test_import_table_names_split_and_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["data", "import", "--from", str(_tree(tmp_path / "tree")), "--out", str(tmp_path / "out")]
    assert run_command([*argv, "--workers", "1"]) == 0
    printed = capsys.readouterr().out
    assert "train" in printed
    assert "mean bytes" in printed


def test_import_twice_ends_with_two_and_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["data", "import", "--from", str(_tree(tmp_path / "tree")), "--out", str(tmp_path / "out")]
    run_command([*argv, "--workers", "1"])
    capsys.readouterr()
    assert run_command([*argv, "--workers", "1"]) == 2
    assert "--overwrite" in capsys.readouterr().err


def test_verify_faults_end_with_four_and_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["data", "verify", str(_set_with_fault(tmp_path)), "--workers", "1"]) == 4
    printed = capsys.readouterr().out
    assert "train.rec, record 0, offset 0: image cannot be decoded" in printed
    assert printed.splitlines()[-1] == "every record read of 1 file: 1 fault"


def test_verify_json_lists_the_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["data", "verify", str(_set_with_fault(tmp_path)), "--workers", "1", "--json"]) == 4
    report = json.loads(capsys.readouterr().out)
    assert (report["verdict"], report["check"], report["num_faults"], report["num_records"]) == ("faults", "full", 1, 0)
    assert report["mean_image_bytes"] is None
    assert report["faults"][0]["file"] == str(tmp_path / "train.rec")
    assert (report["faults"][0]["record"], report["faults"][0]["offset"]) == (0, 0)


def test_verify_says_what_read_the_images(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlbench.worker.native import library

    def absent() -> None:
        raise library.NativeError("libmlbench_native.so is not built")

    monkeypatch.setattr(library, "load", absent)
    argv = ["data", "verify", str(_set_with_fault(tmp_path)), "--workers", "1"]
    run_command(argv)
    printed = capsys.readouterr().out
    assert printed.splitlines()[-2] == "images read by the pillow decoder, slow: libmlbench_native.so is not built"
    run_command([*argv, "--json"])
    assert json.loads(capsys.readouterr().out)["decoder"] == "pillow"
    run_command([*argv, "--json", "--no-decode"])
    assert json.loads(capsys.readouterr().out)["decoder"] is None


def test_verify_quick_of_a_sound_set_ends_with_zero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["data", "verify", str(_set_with_fault(tmp_path)), "--quick"]) == 0
    assert capsys.readouterr().out == "quick check of 1 file: sound\n"


def test_verify_other_count_than_expected_is_a_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["data", "verify", str(_set_with_fault(tmp_path)), "--workers", "1", "--no-decode", "--expect", "2"]
    assert run_command(argv) == 4
    assert "1 sound records, expected 2" in capsys.readouterr().out


def test_verify_nothing_there_ends_with_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["data", "verify", str(tmp_path)]) == 2
    assert "no .rec file in this folder" in capsys.readouterr().err


def test_make_digits_writes_the_fixed_split(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn", reason="needs scikit-learn")
    assert run_command(["data", "make", "digits", "--out", str(tmp_path / "digits"), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["num_train"], made["num_val"], made["px"]) == (640, 1157, 32)
    assert run_command(["data", "verify", str(tmp_path / "digits"), "--quick"]) == 0


def test_make_digits_never_replaces_another_data_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train-00000-of-00002.rec").write_bytes(b"of days")
    assert run_command(["data", "make", "digits", "--out", str(tmp_path)]) == 2
    assert "train-00000-of-00002.rec: is there already; give another --out" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["train-00000-of-00002.rec"]


@pytest.mark.slow
def test_make_synthetic_reports_what_was_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "set"
    argv = ["data", "make", "synthetic", "--out", str(out), "--count", "40", "--px", "64", "--mean-bytes", "2600"]
    assert run_command([*argv, "--workers", "1", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["num_train"], made["num_val"], made["copies"]) == (40, 1, 1)
    assert abs(made["mean_image_bytes"] - 2600) < 260


def test_make_unknown_kind_ends_with_two(tmp_path: Path) -> None:
    assert run_command(["data", "make", "imagenet", "--out", str(tmp_path)]) == 2
