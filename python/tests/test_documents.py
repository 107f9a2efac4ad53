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


@pytest.mark.parametrize("document", ["docs/python.md", "python/README.md"])
def test_python_in_documents_runs(document, tmp_path, monkeypatch):
    # files that a document writes are discarded
    monkeypatch.chdir(tmp_path)
    text = (ROOT / document).read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks, "no Python in the document"
    setting = (
        "import numpy as np, scipy.sparse as sp\n"
        "line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(20, 20))\n"
        "A = sp.kronsum(line, line, format='csr')\n"
        "b = np.ones(400)\n"
    )
    names: dict = {}
    exec(setting, names)
    for block in blocks:
        exec(compile(block, document, "exec"), names)


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
