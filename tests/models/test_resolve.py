"""What may stand where a model is named."""

from pathlib import Path

import pytest

from anaphora.errors import ModelError
from anaphora.models.resolve import ModelSource, resolve

DEMO_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def make_files(folder: Path, *names: str) -> Path:
    folder.mkdir()
    for name in names:
        (folder / name).touch()
    return folder


@pytest.mark.parametrize("model", [None, "smollm2-135m"])
def test_no_name_and_the_demos_name_are_the_demo_model(model: str | None, tmp_path: Path) -> None:
    """It is served under its registry name, with the sampling that its card recommends."""
    folder = tmp_path / "models" / "smollm2-135m"
    folder.mkdir(parents=True)
    path = folder / "SmolLM2-135M-Instruct.Q4_1.gguf"
    with path.open("wb") as file:
        file.truncate(98_362_432)
    (folder / f"{path.name}.sha256").write_text(DEMO_SHA256)
    sampling = {"temperature": 0.2, "top_p": 0.9}
    expected = ModelSource(kind="gguf", path=path, name="smollm2-135m", sampling=sampling)
    assert resolve(model, cache_dir=tmp_path) == expected


@pytest.mark.parametrize("file", ["my.Q4_1.gguf", "MY.GGUF"])
def test_a_gguf_file_is_served_under_its_name_without_the_ending(file: str, tmp_path: Path) -> None:
    """The digest is not computed here."""
    path = tmp_path / file
    path.touch()
    assert resolve(str(path)) == ModelSource(kind="gguf", path=path, name=path.stem)


def test_a_home_folder_may_be_written_as_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in `--model=~/my.gguf`, which the shell does not expand."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "my.gguf").touch()
    assert resolve("~/my.gguf").path == tmp_path / "my.gguf"


def test_an_openvino_folder_is_served_under_its_name(tmp_path: Path) -> None:
    """Whatever else it holds; what is missing is its runner's to say."""
    folder = make_files(tmp_path / "my-model", "openvino_model.xml", "config.json")
    assert resolve(str(folder) + "/") == ModelSource(kind="openvino-ir", path=folder, name="my-model")


ACCEPTED = (
    r"Accepted are a registry name \(smollm2-135m\), a \.gguf file, and a folder with openvino_model\.xml\.$"
)


@pytest.mark.parametrize(
    "files, hint",
    [
        (
            ("config.json", "model.safetensors"),
            "It looks like a Hugging Face model, which this version does not serve",
        ),
        (("b.gguf", "a.gguf"), r"It holds a\.gguf: name that file"),
        ((), "it has no openvino_model.xml"),
    ],
)
def test_another_folder_is_refused_with_a_hint_from_what_it_holds(
    files: tuple[str, ...], hint: str, tmp_path: Path
) -> None:
    """Every refusal says what is accepted."""
    with pytest.raises(ModelError, match=f"{hint}.*{ACCEPTED}"):
        resolve(str(make_files(tmp_path / "x", *files)))


@pytest.mark.parametrize(
    "name, expected",
    [
        ("Qwen/Qwen2.5-0.5B-Instruct", "looks like a Hugging Face id, which this version does not serve"),
        ("smollm2", r"there is no model, file or folder smollm2\. Did you mean smollm2-135m\?"),
        ("nothing-like-it", r"there is no model, file or folder nothing-like-it\. Accepted"),
        ("./a/missing.gguf", r"there is no file \./a/missing\.gguf"),
        ("./missing/folder", r"there is no model, file or folder \./missing/folder"),
        ("", "no OpenVINO model folder"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused_with_what_is_accepted(name: str, expected: str) -> None:
    """The three accepted forms are in every message."""
    with pytest.raises(ModelError, match=f"{expected}.*|{ACCEPTED}") as caught:
        resolve(name)
    assert caught.match(expected)
    assert caught.match(ACCEPTED)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    """By its ending; what is in it was not read."""
    path = tmp_path / "model.safetensors"
    path.touch()
    with pytest.raises(ModelError, match=f"is no GGUF file: its name does not end in .gguf.*{ACCEPTED}"):
        resolve(str(path))
