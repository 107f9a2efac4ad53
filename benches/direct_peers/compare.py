"""krysp's direct solvers, SuperLU, UMFPACK, KLU, CHOLMOD and PARDISO on the same matrices with the same number of threads.

    python3 benches/direct_peers/compare.py THREADS FOLDER [NAME ...] [--most 45] [--limit 3600] [--at-once 1]

Without a name: the square real matrices of $KRYSP_MATRICES (default ../shared/matrices) with 1,000 to 400,000 rows, and those of
problems.py. Appends to FOLDER/THREADS.tsv what is not in it, then prints the summary of all tables in FOLDER. The right-hand side is
A 1. Each code runs up to three times, and repeats small systems up to five times in each run; the fastest counts. Use a new folder
after a change of code or options.

--most      seconds for one run of one code, twice as many for krysp, whose bench also factorizes again; one that takes three times as
            long as the best of its group is stopped
--limit     seconds in all; call again to go on
--at-once   systems at a time, each on separate cores

Needs SciPy and a C++ compiler. UMFPACK, KLU and CHOLMOD need libsuitesparse-dev and libopenblas-dev (Debian); PARDISO needs mkl-static
and mkl-include (PyPI) below $MKL (default /opt/intel/oneapi). A code whose library is missing is left out, and a line says so.
"""

import argparse
import gzip
import json
import os
import pathlib
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import scipy.io
import scipy.sparse as sp
import summary
from problems import PROBLEMS
from summary import HEAD, OTHERS, OURS, has_solved

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILT = ROOT / "target/direct_peers"
MATRICES = pathlib.Path(os.environ.get("KRYSP_MATRICES", ROOT / "../shared/matrices"))
START = time.monotonic()


def build():
    """Compiles everything, and returns the command of krysp's bench and the names of the others that are there."""
    BUILT.mkdir(parents=True, exist_ok=True)
    command = ["cargo", "bench", "--no-run", "--bench", "direct", "--message-format=json-render-diagnostics"]
    printed = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    messages = [json.loads(line) for line in printed.splitlines()]
    bench = next(m["executable"] for m in messages if m.get("executable") and m["target"]["name"] == "direct")
    libraries = "-lumfpack -lklu -lbtf -lcholmod -lamd -lcolamd -lsuitesparseconfig".split()
    there = compiled("suitesparse", ["-I/usr/include/suitesparse"], libraries)
    linked = subprocess.run(["ldd", BUILT / "suitesparse"], capture_output=True, text=True).stdout if there else "openblas"
    if "openblas" not in linked:
        print("UMFPACK and CHOLMOD run without OpenBLAS: their times are not comparable", file=sys.stderr)
    others = [code for code in OTHERS if there or code.startswith("SuperLU")]
    mkl = pathlib.Path(os.environ.get("MKL", "/opt/intel/oneapi"))
    found = {name: next(mkl.rglob(name), None) for name in ("mkl_pardiso.h", "libmkl_core.a", "libiomp5.so")}
    if all(found.values()):
        folder, threads = found["libmkl_core.a"].parent, found["libiomp5.so"].parent
        parts = [str(folder / f"libmkl_{part}.a") for part in ("intel_lp64", "intel_thread", "core")]
        group = ["-Wl,--start-group", *parts, "-Wl,--end-group", f"-L{threads}", f"-Wl,-rpath,{threads}", "-liomp5"]
        pardiso = compiled("pardiso", [f"-I{found['mkl_pardiso.h'].parent}"], [*group, "-lpthread", "-lm", "-ldl"])
    else:
        pardiso = False
    for name, is_there in (("UMFPACK, KLU and CHOLMOD", there), ("PARDISO", pardiso)):
        if not is_there:
            print(f"{name} left out: the library is missing, or {name} could not be compiled", file=sys.stderr)
    return bench, others, pardiso


def compiled(name, flags, libraries):
    command = ["g++", "-O2", "-std=c++17", *flags, HERE / f"{name}.cpp", *libraries, "-o", BUILT / name]
    return bool(shutil.which("g++")) and subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0


def systems(names):
    """Names of matrices, and functions that read or make them."""
    paths = {path.name[:-7]: path for path in MATRICES.rglob("*.mtx.gz")}
    for name in names or sorted(paths, key=lambda name: paths[name].stat().st_size):
        if name in paths and is_square(paths[name]):
            yield name, lambda name=name: scipy.io.mmread(paths[name])
        elif name in names and name in paths:
            sys.exit(f"{name} is not a real square matrix with 1,000 to 400,000 rows")
        elif name in names and name not in PROBLEMS:
            sys.exit(f"{name} is no file of {MATRICES.resolve()} (set KRYSP_MATRICES), nor one of {', '.join(PROBLEMS)}")
    for name in PROBLEMS:
        if name not in paths and (not names or name in names):
            yield name, PROBLEMS[name]


def is_square(path):
    with gzip.open(path, "rt") as file:
        head = file.readline().lower()
        rows, columns, *_ = next(line for line in file if not line.startswith("%")).split()
    return "coordinate" in head and "complex" not in head and rows == columns and 1000 <= int(rows) <= 400000


class System:
    """A matrix in two files: .npz of SciPy, which krysp and SuperLU read, and .bin of peer.hpp."""

    def __init__(self, name, make, folder):
        self.name = name
        self.npz, self.bin = folder / f"{name}.npz", folder / f"{name}.bin"
        a = sp.csr_matrix(make()).astype(float)
        a.sum_duplicates()
        a.sort_indices()
        a.indptr, a.indices = a.indptr.astype("<i4"), a.indices.astype("<i4")
        self.rows, self.entries = a.shape[0], a.nnz
        # krysp's rule
        self.symmetric = (abs(a - a.T) - 1e-10 * abs(a).maximum(abs(a.T))).max() <= 0
        self.positive = self.symmetric and bool((a.diagonal() > 0).all())
        self.solvable = bool(np.abs(a @ np.ones(a.shape[1])).max() > 0)
        sp.save_npz(self.npz, a, compressed=False)
        with open(self.bin, "wb") as file:
            for part in (np.array([a.shape[0], a.nnz], "<i8"), a.indptr, a.indices, a.data.astype("<f8")):
                file.write(part.tobytes())

    def groups(self, others, pardiso, threads):
        """The codes that may solve this system: krysp's, PARDISO, the others."""
        ours = OURS[0 if self.positive else 1 :] if self.symmetric else OURS[2:]
        types = ["11", *(["-2"] if self.symmetric else []), *(["2"] if self.positive else [])] if pardiso else []
        types += [f"{kind}p" for kind in types] if threads >= 8 else []
        return ours, [f"PARDISO {kind}" for kind in types], [c for c in others if c != "CHOLMOD" or self.positive]


def command(code, system, bench):
    if code in OURS:
        return [bench, system.npz, "--only", code, "--runs", "5", "--gib", "100"]
    if code.startswith("SuperLU"):
        return [sys.executable, HERE / "superlu.py", system.npz, code.split()[1], "5"]
    if code.startswith("PARDISO"):
        return [BUILT / "pardiso", system.bin, code.split()[1], "5"]
    return [BUILT / "suitesparse", system.bin, code.lower(), "5"]


def run(words, threads, cores, limit):
    """The last line that a program prints, and how it ended if it did not end well."""
    variables = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
    environment = os.environ | {name: str(threads) for name in variables}
    # MKL must not reduce the number of threads; OpenMP's threads and those of OpenBLAS share the cores, so they may not spin
    environment |= {"MKL_DYNAMIC": "FALSE", "OMP_PROC_BIND": "false", "OMP_STACKSIZE": "64M"}
    if "pardiso" not in str(words[0]):
        environment["OMP_WAIT_POLICY"] = "passive"
    with tempfile.TemporaryFile() as output:
        pinned = ["taskset", "-c", ",".join(map(str, sorted(cores))), *words]
        process, late = subprocess.Popen(pinned, stdout=output, stderr=subprocess.STDOUT, env=environment), False
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            late = True
            process.kill()
            process.wait()
        output.seek(0)
        lines = output.read().decode(errors="replace").strip().split("\n")
    end = "" if process.returncode in (0, 1) else f"exit status {process.returncode}"
    return lines[-1], f"over {limit:.1f} s" if late else end


def parsed(code, line, end):
    """The columns of HEAD from analysis_s to factor_mib, and the status."""
    if end:
        return [""] * 7, end
    if code not in OURS:
        fields = line.split("\t")
        return (fields, "ok") if len(fields) == 7 else ([""] * 7, f"failed: {fields[-1]}"[:120])
    fields = line.split(",")
    if len(fields) < 13 or fields[0] == "matrix" or not fields[8]:
        return [""] * 7, "failed: " + (",".join(fields[12:]).strip('"') or line)[:120]
    setup, refresh, entries, mib, solve, backward, refined = map(float, fields[4:11])
    seconds = max(0.0, setup - refresh), min(setup, refresh), solve
    return [*(f"{1e-3 * s:.6f}" for s in seconds), backward, refined, f"{entries:.0f}", mib], "ok"


class Table:
    def __init__(self, path):
        self.path, self.lock, self.rows = path, threading.Lock(), {}
        if path.exists():
            for line in path.read_text().split("\n")[1:]:
                fields = line.split("\t")
                if len(fields) == len(HEAD):
                    self.rows[fields[0], int(fields[4]), fields[5]] = fields
        else:
            path.write_text("\t".join(HEAD) + "\n")

    def add(self, row):
        row = [str(field) for field in row]
        with self.lock, open(self.path, "a") as file:
            self.rows[row[0], int(row[4]), row[5]] = row
            file.write("\t".join(row) + "\n")

    def best(self, name, codes):
        rows = [row for (of, _, code), row in self.rows.items() if of == name and code in codes and has_solved(row)]
        return min((sum(map(float, row[6:9])) for row in rows), default=np.inf)

    def runs(self, name, code):
        return sum(of == name and by == code for of, _, by in self.rows)


def measure(table, system, groups, bench, threads, cores, options):
    """Runs all codes on a system; False if the time did not suffice."""
    for round in range(3):
        for group in groups:
            for code in group:
                best, own, runs = table.best(system.name, group), table.best(system.name, [code]), table.runs(system.name, code)
                most = 3 if own < 1 else 2 if own < 5 else 1
                if runs > round or round and (round >= most or own > 1.5 * best or not np.isfinite(own)):
                    continue
                limit = min(options.most, 3 * best + 3 + system.entries / 1e6) if np.isfinite(best) else options.most
                limit *= 2 if code in OURS else 1
                if options.limit - (time.monotonic() - START) < limit + 2:
                    return False
                line, end = run(command(code, system, bench), threads, cores, limit)
                values, status = parsed(code, line, end)
                start = [system.name, system.rows, system.entries, threads, round, code]
                table.add([*start, *values, status.replace("\t", " ")])
    return True


def cores_in_order():
    """Numbers of the cores, one of each physical core first."""
    first, rest, seen = [], [], set()
    for core in sorted(os.sched_getaffinity(0)):
        siblings = pathlib.Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
        key = siblings.read_text() if siblings.exists() else str(core)
        (rest if key in seen else first).append(core)
        seen.add(key)
    return first + rest


def main(options):
    with tempfile.TemporaryDirectory() as folder:
        left = compare(options, pathlib.Path(folder))
    summary.main(options.folder)
    if left:
        sys.exit(f"call again: {len(left)} systems are not complete: {' '.join(left)}")


def compare(options, folder):
    """Measures all systems, and returns the names of those for which the time did not suffice."""
    listed, cores = list(systems(options.names)), cores_in_order()
    if options.threads * options.at_once > len(cores):
        sys.exit(f"{options.threads} threads for each of {options.at_once} systems need more than {len(cores)} cores")
    bench, others, pardiso = build()
    options.folder.mkdir(parents=True, exist_ok=True)
    table = Table(options.folder / f"{options.threads}.tsv")
    work, left = queue.Queue(), []
    for system in listed:
        work.put(system)

    def worker(cores):
        while True:
            try:
                name, make = work.get_nowait()
            except queue.Empty:
                return
            if time.monotonic() - START > options.limit:
                left.append(name)
                continue
            try:
                system = System(name, make, folder)
                groups = system.groups(others, pardiso, options.threads)
                if not system.solvable:
                    print(f"{name} left out: A 1 is zero", file=sys.stderr)
                elif not measure(table, system, groups, bench, options.threads, cores, options):
                    left.append(name)
                system.npz.unlink()
                system.bin.unlink()
            except Exception as why:
                print(f"{name}: {why!r}", file=sys.stderr)
                left.append(name)

    parts = [cores[k * options.threads : (k + 1) * options.threads] for k in range(options.at_once)]
    workers = [threading.Thread(target=worker, args=(part,), daemon=True) for part in parts]
    for thread in workers:
        thread.start()
    for thread in workers:
        thread.join()
    return left


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("threads", type=int)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--most", type=float, default=45)
    parser.add_argument("--limit", type=float, default=3600)
    parser.add_argument("--at-once", type=int, default=1)
    options = parser.parse_intermixed_args()
    if options.limit <= 2 * options.most + 2:
        parser.error("--limit must be more than twice --most")
    main(options)
