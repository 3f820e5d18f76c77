"""docs/reference/compression.md: its hooks run as one script of a user's, and the script's process ends by itself."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "compression.md"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_examples_print_what_the_page_says() -> None:
    blocks = BLOCK.findall(DOCUMENT.read_text())
    script = "".join(body for kind, body in blocks if kind == "python")
    expected = "".join(body for kind, body in blocks if kind == "text")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    place = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=DOCUMENT.parents[1],
        env=place,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.stdout == expected, done.stderr
    assert done.returncode == 0
