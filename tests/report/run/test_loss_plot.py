"""loss.png: drawn from what can be read."""

from unisono.report.run.loss_plot import plot_loss


def test_damaged_lines_are_left_out(tmp_path):
    lines = [
        b'{"epoch": 1, "train_loss": 0.5}',
        b"\xff\xfe",
        b"\0\0",
        b"null",
        b"5",
        b'{"train_loss": 1}',
        b'{"epoch": 2, "train_loss": 0.4}',
    ]
    (tmp_path / "metrics.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    plot_loss(tmp_path)
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
