"""Run the code of docs/python.md as a script without a main guard, and cell by cell in a Jupyter kernel."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from tests.api.python_page import code_blocks

HEADINGS = re.compile(r"^run +algorithm +environment +seed +status +steps +reward$", re.MULTILINE)


def test_page_runs_as_a_script(tmp_path: Path) -> None:
    (tmp_path / "page.py").write_text("\n".join(code_blocks()))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, **pipes, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "algorithm.gama is not a setting; did you mean gamma?" in done.stdout
    assert len(HEADINGS.findall(done.stdout)) == 1, "the script runs once; child processes do not import it"
    assert {path.name for path in tmp_path.glob("*.png")} == {"curve.png", "comparison.png"}


def test_page_runs_in_a_notebook(tmp_path: Path) -> None:
    cells = [nbformat.v4.new_code_cell(block) for block in code_blocks()]
    cells.append(nbformat.v4.new_code_cell("run"))
    cells.append(nbformat.v4.new_code_cell("run.plot()"))
    cells.append(nbformat.v4.new_code_cell("series"))
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.outputs]
    shown = [output["data"] for output in outputs if output.output_type in ("display_data", "execute_result")]
    assert any("<progress" in data.get("text/html", "") for data in shown), "training shows a progress bar"
    run, plot, series = (data for data in shown[-3:])
    assert "<table>" in run["text/html"]
    assert "Run('" in run["text/plain"]
    assert "image/png" in plot
    assert "algorithm.lr" in series["text/html"]
