"""From weights to use: trainer.predict and trainer.export, as a user types them, and the snippets of the page."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import nn

from tests import needs
from tests.conftest import ROOT
from trainer import export, models, predict
from trainer.contract import Exit
from trainer.datasets.base import Normalisation, Signature
from trainer.datasets.decode import Normaliser
from trainer.errors import SettingsError, import_function
from trainer.models.cnn import build
from trainer.state import checkpoint
from trainer.trained import load

SIDE = 16
SIGNATURE = Signature(("cat", "dog", "eel"), SIDE, (0.5, 0.4, 0.3), (0.2, 0.3, 0.25))


@pytest.fixture(scope="module")
def weights() -> dict[str, torch.Tensor]:
    """Of a model that calls dark images cats and bright ones dogs."""
    torch.manual_seed(0)
    model = build("cnn", 3, SIDE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    labels = torch.arange(30) % 2
    for _ in range(20):
        images = (labels * 0.8 + 0.1).view(-1, 1, 1, 1).expand(-1, 3, SIDE, SIDE)
        loss = nn.functional.cross_entropy(model((images - 0.4) / 0.25), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.state_dict()


@pytest.fixture
def run(tmp_path: Path, weights: dict[str, torch.Tensor]) -> Path:
    """The folder of such a run, without the training."""
    folder = tmp_path / "run"
    folder.mkdir()
    checkpoint.save_weights(folder / "model.pt", weights)
    (folder / "model.json").write_text(SIGNATURE.as_json("cnn"))
    return folder


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A folder with a dark image, a bright one within a folder of its own, and a text."""
    folder = tmp_path / "images"
    (folder / "more").mkdir(parents=True)
    Image.new("L", (40, 20), 25).save(folder / "dark.png")
    Image.new("RGB", (16, 16), (230, 230, 230)).save(folder / "more" / "bright.JPG")
    (folder / "notes.txt").write_text("no image")
    return folder


def test_images_get_the_class_and_its_probability(run: Path, images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert predict.main([str(run), str(images)]) == Exit.DONE

    dark, bright = capsys.readouterr().out.splitlines()
    assert re.fullmatch(rf"{images}/dark\.png  cat \d\d(\.\d)?%", dark)
    assert re.fullmatch(rf"{images}/more/bright\.JPG  dog \d\d(\.\d)?%", bright)


def test_hidden_files_and_folders_called_like_images_are_not_classified(
    run: Path, images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (images / "more").rename(images / "000.png")
    (images / "broken.png").write_text("not a picture")
    (images / "._dark.png").write_bytes(b"\0\5\x16\7")
    (images / ".thumbnails").mkdir()
    (images / ".thumbnails" / "dark.png").write_bytes((images / "dark.png").read_bytes())

    assert predict.main([str(run), str(images)]) == Exit.DATA  # of the broken one, which keeps no other from its class

    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        str(images / "000.png" / "bright.JPG"), str(images / "dark.png"),
    ]  # fmt: skip


def test_a_table_has_as_many_classes_as_asked_for(run: Path, images: Path, tmp_path: Path) -> None:
    table = tmp_path / "classes.csv"

    assert predict.main([str(run), str(images / "dark.png"), "--csv", str(table), "--top", "9"]) == Exit.DONE

    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["image"], row["rank"]) for row in rows] == [(str(images / "dark.png"), rank) for rank in "123"]
    assert (rows[0]["class"], sum(float(row["probability"]) for row in rows)) == ("cat", pytest.approx(1, abs=1e-5))


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        ("nowhere images", Exit.SETTINGS, "nowhere"),
        ("images images", Exit.SETTINGS, "images has no model.pt"),
        ("images/notes.txt images", Exit.SETTINGS, "images/notes.txt contains no weights"),
        ("run images/none.png", Exit.DATA, "images/none.png (No such file or directory)"),
        ("run empty", Exit.DATA, "no images"),
        ("run images/notes.txt", Exit.DATA, "images/notes.txt"),
        ("run images --csv no/where.csv", Exit.SETTINGS, "--csv no/where.csv"),
        ("run images --csv images", Exit.SETTINGS, "--csv images"),
        ("alone images", Exit.SETTINGS, "alone/model.json"),
        ("other images", Exit.SETTINGS, "does not fit the model cnn for 2 classes"),
        ("damaged images", Exit.SETTINGS, "is damaged"),
        ("diverged images", Exit.SETTINGS, "not finite"),
    ],
)
@pytest.mark.usefixtures("images")
def test_what_cannot_be_classified_gets_a_sentence_and_its_exit_code(
    words: str, code: Exit, named: str, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(run.parent)
    for name in ("empty", "alone", "other", "damaged", "diverged"):
        Path(name).mkdir()
    weights = torch.load(run / "model.pt")
    weights["head.bias"][1] = float("nan")
    torch.save(weights, "diverged/model.pt")
    Path("diverged/model.json").write_bytes((run / "model.json").read_bytes())
    for name in ("alone", "other"):
        Path(name, "model.pt").write_bytes((run / "model.pt").read_bytes())
    Path("other/model.json").write_text(replace(SIGNATURE, classes=("cat", "dog")).as_json("cnn"))
    Path("damaged/model.pt").write_bytes((run / "model.pt").read_bytes()[:-1])
    Path("damaged/model.pt.sha256").write_bytes((run / "model.pt.sha256").read_bytes())

    assert predict.main(words.split()) == code
    err = capsys.readouterr().err
    assert named in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_a_class_or_an_image_that_is_called_like_a_formula_is_none_in_the_table(
    run: Path, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model of a stranger's names its classes, and who sends images names them."""
    named = replace(SIGNATURE, classes=('=HYPERLINK("http://x")', "@SUM(1)", "-2+3"))
    (run / "model.json").write_text(named.as_json("cnn"))
    monkeypatch.chdir(images)
    Path("dark.png").rename("=1+1.png")

    assert predict.main([str(run), "=1+1.png", "--csv", str(tmp_path / "t.csv"), "--top", "3"]) == Exit.DONE

    with (tmp_path / "t.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["image"] for row in rows} == {"'=1+1.png"}
    assert {row["class"] for row in rows} == {f"'{name}" for name in named.classes}


def test_a_checkpoint_is_used_with_its_averaged_weights(run: Path) -> None:
    plain = load(run).classifier.model.state_dict()
    averaged = {name: weight * 2 for name, weight in plain.items()}
    state = {"format": 1, "config": {"model": "cnn"}, "signature": json.loads(SIGNATURE.as_json("cnn")), "model": plain}
    for ema, expected in (({}, plain), ({"updates": 1, "weights": averaged}, averaged)):
        checkpoint.save_weights(run / "checkpoints" / "best.pt", state | {"ema": ema})
        found = load(run / "checkpoints").classifier.model.state_dict()
        assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_the_model_sees_what_evaluation_saw(run: Path, images: Path) -> None:
    trained = load(run)
    pixels = torch.from_numpy(trained.pixels(images / "dark.png").copy())[None]
    normalise = Normaliser(Normalisation(SIGNATURE.mean, SIGNATURE.std), SIDE, torch.device("cpu"), channels_last=False)

    with torch.inference_mode():
        expected = trained.classifier.model(normalise(pixels)).softmax(dim=1)[0]
    found = {guess.name: guess.probability for guess in trained.classify(images / "dark.png")}
    assert [found[name] for name in SIGNATURE.classes] == pytest.approx(expected.tolist(), abs=1e-6)


SLOW = pytest.mark.slow("an ONNX export agrees with the run")
ONNX = pytest.param("onnx", marks=[SLOW, needs.module("onnxscript"), needs.module("onnxruntime")])


@pytest.mark.parametrize("to", ["torch", ONNX])
def test_an_exported_model_agrees_with_the_run(to: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export.main([str(run), "--to", to]) == Exit.DONE

    path = run / export.FORMATS[to].file_name
    assert f"{path}: images (batch, 3, 16, 16), RGB from 0 to 1 -> probabilities (batch, 3); compared" in (
        capsys.readouterr().out
    )
    images = torch.rand(7, 3, SIDE, SIDE)
    assert torch.allclose(export.FORMATS[to].read(path.read_bytes())(images), load(run).classifier(images), atol=1e-5)


def test_an_export_that_differs_is_not_kept(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = load(run)
    wrong = replace(
        export.FORMATS["torch"], write=lambda _: b"", read=lambda _: lambda images: torch.rand(len(images), 3)
    )
    monkeypatch.setattr(export, "FORMATS", {"torch": wrong})

    with pytest.raises(SettingsError, match=r"the exported cnn differs from the original by .* so it is not kept"):
        export.export(trained, "torch", run / "model.pt2")
    assert not (run / "model.pt2").exists()


def test_an_export_needs_its_packages_and_a_folder(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export.main([str(run), "--to", "torch", "--out", str(run / "no" / "x")]) == Exit.SETTINGS
    monkeypatch.setattr(export, "find_spec", lambda _: None)
    assert export.main([str(run), "--to", "onnx"]) == Exit.SETTINGS
    assert "pip install" in capsys.readouterr().err


def snippets() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "trainer" / "README.md").read_text(), re.DOTALL)


def test_the_pages_snippets_run_as_they_are(
    run: Path, images: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(run.parent)
    Path("runs").mkdir()
    run.rename("runs/RUN")
    (images / "dark.png").rename("photo.jpg")
    assert export.main(["runs/RUN", "--to", "torch"]) == Exit.DONE
    capsys.readouterr()

    for code in snippets():
        exec(code, {})

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["cat", "cat"], lines
    assert len(set(lines)) == 1  # the same probability, too
    assert max(len(code.splitlines()) for code in snippets()) <= 10


@pytest.mark.parametrize("name", ["shufflenet_v2_x0_5"])
def test_a_model_of_any_family_is_loaded_from_its_own_weights(name: str, tmp_path: Path) -> None:
    signature = replace(SIGNATURE, image_size=64)
    model = import_function(models.TABLE[name])(name, 3, 64)
    checkpoint.save_weights(tmp_path / "model.pt", model.state_dict())
    (tmp_path / "model.json").write_text(signature.as_json(name))

    found = load(tmp_path).classifier.model.state_dict()

    assert all(torch.equal(found[part], weight) for part, weight in model.state_dict().items())
