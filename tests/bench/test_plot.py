"""Pictures: that they hold what was measured, and that a wrong one is refused before the run."""

from pathlib import Path

import pytest

from anaphora.bench.boundary import BoundaryExperiment
from anaphora.bench.burst import BurstExperiment
from anaphora.bench.experiment import Experiment
from anaphora.bench.multiturn import MultiturnExperiment
from anaphora.bench.plot import check_plot, draw
from anaphora.bench.prefix import PrefixExperiment
from anaphora.bench.replay import ReplayExperiment, TracedRequest
from anaphora.errors import ConfigError
from tests.bench.fakes import FakeServer, bench

TRACE = tuple(TracedRequest(float(number), 40, 2, (0, number)) for number in range(1, 5))


@pytest.mark.parametrize(
    ("experiment", "words"),
    [
        (
            PrefixExperiment(tokens=60, rounds=3, output_tokens=2),
            ("cold", "warm", "control", "22 (n=6)", "achievable"),
        ),
        (BoundaryExperiment(shared=(15, 16, 33), rounds=3), ("blocks of 16", "cached_tokens")),
        (BurstExperiment(concurrency=2, tokens=60, rounds=3, output_tokens=2), ("identical", "different")),
        (
            MultiturnExperiment(turns=2, rounds=3, tokens=30, output_tokens=4),
            ("text: achievable", "control", "turn"),
        ),
        (
            ReplayExperiment(requests=TRACE, block_size=20, scale=1.0),
            ("tokens, request by request", "achievable"),
        ),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_each_experiment_has_its_picture(
    experiment: Experiment, words: tuple[str, ...], tmp_path: Path
) -> None:
    """Texts stay texts in an .svg, so that they can be found."""
    path = tmp_path / "p.svg"
    draw(bench(experiment, FakeServer()), path)
    text = path.read_text()
    assert all(f">{word}" in text for word in (*words, f"{experiment.name} · fake 1.2 · tiny"))
    assert len(text) < 100_000


def test_a_png_is_a_png(tmp_path: Path) -> None:
    """By its first bytes."""
    path = tmp_path / "p.png"
    draw(bench(PrefixExperiment(tokens=60, rounds=3, output_tokens=2), FakeServer()), path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_partial_run_without_intervals_is_drawn_and_marked(tmp_path: Path) -> None:
    """Two requests have no interval."""
    path = tmp_path / "p.svg"
    report = bench(PrefixExperiment(tokens=60, rounds=3, output_tokens=2), FakeServer(trouble={6: "ctrl-c"}))
    draw(report, path)
    assert "PARTIAL" in path.read_text()


def test_a_run_without_an_answer_has_a_picture_without_bars(tmp_path: Path) -> None:
    """Rather than a traceback after all the waiting."""
    failing = FakeServer(trouble=dict.fromkeys(range(2, 99), "500"))
    for experiment in (BoundaryExperiment(shared=(16,), rounds=3), PrefixExperiment(tokens=60)):
        failing.bodies.clear()
        draw(bench(experiment, failing), tmp_path / "p.png")


@pytest.mark.parametrize(
    ("name", "words"),
    [("p.pdf", "must end in .png or .svg"), ("p", "ends in nothing")],
)
def test_a_picture_that_cannot_be_drawn_is_refused_before_the_run(
    tmp_path: Path, name: str, words: str
) -> None:
    """Measuring takes minutes."""
    with pytest.raises(ConfigError, match=words):
        check_plot(tmp_path / name)
