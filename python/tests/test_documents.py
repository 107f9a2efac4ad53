"""The examples in docstrings, documents and the notebook run; the stubs match the code."""

import ast
import doctest
import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import krysp
import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MODULES = ["krysp", *(f"krysp.{module.name}" for module in pkgutil.iter_modules(krysp.__path__))]


@pytest.mark.parametrize("name", [name for name in MODULES if name != "krysp._krysp"])
def test_examples_of_docstrings(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_what_is_public_has_an_example_or_words():
    for name in krysp.__all__:
        if name != "__version__":
            assert (getattr(krysp, name).__doc__ or "").strip(), name


def test_the_notebook_runs():
    os.environ.setdefault("MPLBACKEND", "agg")
    notebook = json.loads((HERE.parent / "examples" / "heat.ipynb").read_text())
    names: dict = {}
    shown = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]))
        last = tree.body[-1]
        if isinstance(last, ast.Expr):
            tree.body.pop()
        exec(compile(tree, "heat.ipynb", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "heat.ipynb", "eval"), names)
            # a notebook displays this representation
            shown += "<table>" in getattr(value, "_repr_html_", str)()
    assert shown == 1


PAGES = sorted(str(page.relative_to(ROOT)) for page in [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "python" / "README.md"])

# names that pages other than tutorials may use
SETTING = (
    "import numpy as np, scipy.sparse as sp\n"
    "line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(20, 20))\n"
    "A = sp.kronsum(line, line, format='csr')\n"
    "b = np.ones(400)\n"
)


def blocks(page, info):
    """Blocks of code of a page whose fence is marked with these words."""
    return re.findall(rf"^```{info}\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


def test_pages_have_python():
    having = [page for page in PAGES if blocks(page, "python")]
    assert len([page for page in having if "tutorials" in page]) >= 5 and len(having) >= 10, having


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")])
def test_python_in_documents_runs(page, tmp_path, monkeypatch):
    # files that a page writes are discarded
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    names: dict = {}
    if "tutorials" not in page:
        exec(SETTING, names)
    for block in blocks(page, "python"):
        exec(compile(block, page, "exec"), names)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python gpu")])
def test_python_for_gpus_runs_where_there_is_one(page):
    compiled = [compile(block, page, "exec") for block in blocks(page, "python gpu")]
    if not krysp.devices():
        pytest.skip("no GPU for the code of a page")
    names: dict = {}
    for code in compiled:
        exec(code, names)


def test_the_reference_names_everything_public():
    page = (ROOT / "docs" / "reference" / "python.md").read_text()
    names = [name for name in krysp.__all__ if name not in ("__version__", "Preconditioner")]
    names += [name for name in dir(krysp.Report) if not name.startswith("_")]
    assert not [name for name in names if not re.search(rf"`{name}[`(]", page)]


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_types(checker):
    pytest.importorskip(checker)
    checked = subprocess.run([sys.executable, "-m", checker], cwd=HERE.parent, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def test_stubs_name_what_the_compiled_module_has():
    stubs = ast.parse((HERE.parent / "krysp" / "_krysp.pyi").read_text())
    from krysp import _krysp

    def compare(body, owner, where):
        for item in body:
            if isinstance(item, ast.FunctionDef | ast.ClassDef):
                assert hasattr(owner, item.name), f"{where}.{item.name}"
                if isinstance(item, ast.ClassDef):
                    compare(item.body, getattr(owner, item.name), f"{where}.{item.name}")

    compare(stubs.body, _krysp, "krysp")
    named = {item.name for item in stubs.body if isinstance(item, ast.FunctionDef | ast.ClassDef)}
    public = {name for name in dir(_krysp) if not name.startswith("_")}
    assert public <= named, public - named
