"""What `import krysp` costs, and where it looks for NVRTC."""

import os
import subprocess
import sys
from pathlib import Path

import krysp
import pytest


def run(code, **changes):
    """What a fresh interpreter prints."""
    environment = {name: value for name, value in {**os.environ, **changes}.items() if value is not None}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_import_takes_no_other_library():
    heavy = ("scipy", "cupy", "torch", "jax", "matplotlib")
    assert run(f"import krysp, sys; print([name for name in {heavy} if name in sys.modules])") == "[]"


def test_public_names_are_listed_before_they_are_used():
    assert run("import krysp; print(set(krysp.__all__) <= set(dir(krysp)), krysp.cg.__name__)") == "True cg"
    assert run("from krysp import *; print(cg.__name__, Plan.__name__)") == "cg Plan"
    with pytest.raises(AttributeError, match="module 'krysp' has no attribute 'spam'"):
        krysp.spam


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity masks")
@pytest.mark.parametrize(("variable", "threads"), [(None, "1"), ("3", "3")])
def test_threads_are_limited_to_the_cores_that_the_process_may_use(variable, threads):
    code = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import krysp, numpy, scipy.sparse
A = scipy.sparse.csr_array(numpy.diag([2.0, 3.0]))
before = len(os.listdir("/proc/self/task"))
krysp.cg(A, [1.0, 1.0])
print(len(os.listdir("/proc/self/task")) - before)
"""
    assert run(code, RAYON_NUM_THREADS=variable) == threads


def test_nvrtc_is_found_in_a_wheel_of_nvidia(tmp_path):
    named = [os.environ.get("CUDA_HOME", "") + "/lib", *os.environ.get("LD_LIBRARY_PATH", "").split(":")]
    found = [Path(folder) for folder in named if list(Path(folder or "/nowhere").glob("libnvrtc.so.1[23]"))]
    if not found:
        assert os.environ.get("KRYSP_REQUIRE_NVRTC") != "1", "KRYSP_REQUIRE_NVRTC=1, and no NVRTC in CUDA_HOME"
        pytest.skip("needs NVRTC in CUDA_HOME or on LD_LIBRARY_PATH")
    version = "from krysp import _krysp; print(_krysp.compiler_version())"
    alone = {"LD_LIBRARY_PATH": None, "CUDA_HOME": None, "CUDA_PATH": None, "CONDA_PREFIX": None}
    if run(version, **alone) != "None":
        pytest.skip("NVRTC is found without a wheel")
    wheels = tmp_path / "nvidia" / "cu13"
    wheels.mkdir(parents=True)
    (wheels / "lib").symlink_to(found[0])
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    assert run(version, PYTHONPATH=path, **alone).startswith(("(12, ", "(13, "))
    # NVRTC opens a second library by its name when it compiles
    loaded = f"{version}; print('libnvrtc-builtins.so' in open('/proc/self/maps').read())"
    assert run(loaded, PYTHONPATH=path, **alone).endswith("True")
