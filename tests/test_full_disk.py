"""A disk that is full while something is written, in a real process: the old file stays, and the message says what was not written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import ndpp
import only_posix
from command import ENVIRONMENT

CODE = """
import json, resource, signal, sys
from pathlib import Path
import numpy as np
import ndpp
from ndpp.baskets.orders import Orders
from ndpp.cli.app import run
from ndpp.customers import Customers

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
rng, labels = np.random.default_rng(0), [f"item {i}" for i in range(500)]
law = ndpp.Mixture.tied(rng.uniform(0.01, 0.02, (3, 500)), rng.normal(size=(500, 2)), np.eye(2), np.full(3, 1 / 3), labels=labels)
baskets = law.sample(400, rng=0)
people = Customers.fit(law, Orders(baskets, customers=[str(i) for i in range(400)]))
ndpp.save(law, "model.safetensors")
save = {
    "law.safetensors": lambda path: ndpp.save(law, path),
    "shop.customers": people.save,
    "drawn.csv": lambda path: run(["sample", "model.safetensors", "-n", "500", "-o", path]),
    "given.json": lambda path: run(["sample", "model.safetensors", "-n", "500", "-o", path]),
    **dict.fromkeys(["b.txt", "b.txt.gz", "b.csv", "b.parquet"], baskets.write),
}
for path in save:
    Path(path).write_text("" if path == "drawn.csv" else "precious")
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
said = {}
for path, write in save.items():
    try:
        write(path)
    except (OSError, SystemExit) as error:
        said[path] = str(error)
print(json.dumps(said))
"""


@only_posix.limits
def test_a_full_disk_leaves_the_old_files(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        cwd=tmp_path,
        env={**ENVIRONMENT, "PYTHONPATH": str(Path(ndpp.__file__).parents[1])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert len(said) == 8
    for path, message in said.items():
        told = done.stderr if message == "1" else message
        assert path in told
        assert "File too large" in told
        assert (tmp_path / path).read_text() == ("" if path == "drawn.csv" else "precious")
    assert {file.name for file in tmp_path.iterdir()} == {*said, "model.safetensors"}
