"""summary.py FOLDER: prints the figures of the tables that compare.py has written to a folder."""

import pathlib
import sys

import numpy as np

HEAD = "file rows nnz threads round code analysis_s factor_s solve_s backward refined entries factor_mib status".split()
OURS = ["Cholesky", "Ldl", "Lu"]
OTHERS = ["CHOLMOD", "UMFPACK", "KLU", "SuperLU MMD", "SuperLU COLAMD"]
SECONDS = ("analysis_s", "factor_s", "solve_s")
# A code whose backward error is larger after two steps of refinement has not solved the system.
SOLVED = 1e-10


def has_solved(fields):
    """Returns whether a line of a table is of a code that solved the system."""
    row = dict(zip(HEAD, fields))
    return row["status"] == "ok" and float(row["refined"]) <= SOLVED


class Results:
    """The fastest run of each code on each file, and why others have none."""

    def __init__(self, path):
        self.best, self.failures, self.sizes = {}, {}, {}
        for line in path.read_text().strip().split("\n")[1:]:
            row = dict(zip(HEAD, line.split("\t")))
            key = row["file"], row["code"]
            self.sizes[row["file"]] = int(row["rows"])
            if has_solved(row.values()):
                row["total"] = sum(float(row[name]) for name in SECONDS)
                if key not in self.best or row["total"] < self.best[key]["total"]:
                    self.best[key] = row
            else:
                self.failures[key] = row["status"] if row["status"] != "ok" else f"backward error {row['refined']}"
        self.failures = {key: why for key, why in self.failures.items() if key not in self.best}

    def fastest(self, file, group):
        rows = (row for (of, code), row in self.best.items() if of == file and group_of(code) == group)
        return min(rows, key=lambda row: row["total"], default=None)

    def are_late(self, file):
        """Returns whether one of the four took too long, and none solved the system."""
        late = any(of == file and group_of(code) == "four" and why.startswith("over") for (of, code), why in self.failures.items())
        return late and not self.fastest(file, "four")


def group_of(code):
    return "krysp" if code in OURS else "PARDISO" if code.startswith("PARDISO") else "four"


def mean(ratios):
    if not ratios:
        return "no system"
    above = sum(ratio > 1 for ratio in ratios)
    value = np.exp(np.mean(np.log(ratios)))
    return f"{value:.3f} (geometric mean of {len(ratios)}; {min(ratios):.2f} to {max(ratios):.2f}; above 1 on {above})"


def largest(pairs, count=6):
    return ", ".join(f"{name} {value:.2g}" for value, name in sorted(pairs, reverse=True)[:count]) or "none"


def table(results, rows):
    print("file rows krysp code analysis factor solve backward refined entries MiB four code krysp/four PARDISO code krysp/PARDISO".replace(" ", "\t"))
    own = (*SECONDS, "backward", "refined", "entries", "factor_mib")
    for name, (krysp, four, pardiso) in sorted(rows.items(), key=lambda row: -(row[1][0] or {"total": 0})["total"]):
        cells = [name, results.sizes[name]]
        for at, row in enumerate((krysp, four, pardiso)):
            cells += [f"{row['total']:.5f}", row["code"]] if row else ["", ""]
            cells += [row[column] if row else "" for column in own] if at == 0 else []
            cells += [f"{krysp['total'] / row['total']:.2f}" if krysp and row else ""] if at else []
        print("\t".join(map(str, cells)))


def report(threads, results, two):
    rows = {name: tuple(results.fastest(name, group) for group in ("krysp", "four", "PARDISO")) for name in results.sizes}
    print(f"\n== {threads} threads, {len(rows)} systems; seconds of analysis, factorization and one solve\n")
    table(results, rows)
    both = [(name, krysp["total"] / four["total"], four["total"]) for name, (krysp, four, _) in rows.items() if krysp and four]
    print("\ntime of krysp over that of the best of SuperLU, UMFPACK, KLU and CHOLMOD")
    print("  where that takes 2 ms or more:", mean([ratio for _, ratio, time in both if time >= 2e-3]))
    print("  where it takes less:", mean([ratio for _, ratio, time in both if time < 2e-3]))
    print("  largest:", largest([(ratio, name) for name, ratio, _ in both]))
    if two and two is not results:
        slow = {name for name in two.sizes if two.are_late(name) or (two.fastest(name, "four") or {"total": 0})["total"] >= 0.2}
        print("  where it takes 0.2 s or more on two threads:", mean([ratio for name, ratio, _ in both if name in slow]))
        pairs = [(two.fastest(name, "krysp"), rows[name][0]) for name in slow if name in rows]
        print("  speedup of krysp on these over two threads:", mean([a["total"] / b["total"] for a, b in pairs if a and b]))
    print("  solved by krysp alone:", " ".join(name for name, (krysp, four, _) in rows.items() if krysp and not four) or "none")
    print("  solved by one of the four alone:", " ".join(name for name, (krysp, four, _) in rows.items() if four and not krysp) or "none")
    beside = [(krysp["total"] / other["total"], other["total"], name) for name, (krysp, _, other) in rows.items() if krysp and other]
    print("time of krysp over that of PARDISO")
    print("  all:", mean([ratio for ratio, _, _ in beside]))
    print("  where PARDISO takes 0.2 s or more:", mean([ratio for ratio, time, _ in beside if time >= 0.2]))
    print("  largest:", largest([(ratio, name) for ratio, _, name in beside]))
    print("  solved by PARDISO alone:", " ".join(name for name, (krysp, _, other) in rows.items() if other and not krysp) or "none")
    solved = [(krysp, name) for name, (krysp, _, _) in rows.items() if krysp]
    print("largest backward errors of krysp after refinement:", largest([(float(row["refined"]), name) for row, name in solved]))
    print("  and before:", largest([(float(row["backward"]), name) for row, name in solved]))
    memory = [(krysp, four) for krysp, four, _ in rows.values() if krysp and four and float(four["factor_mib"]) > 1]
    ratios = [float(krysp["factor_mib"]) / float(four["factor_mib"]) for krysp, four in memory]
    print("memory of the factors over that of the fastest of the four (more than 1 MiB):", mean(ratios))
    symmetric = [(results.best.get((name, "Ldl")), results.best.get((name, "Lu")), name) for name in rows]
    indefinite = [(a, b, name) for a, b, name in symmetric if a and b and not results.best.get((name, "Cholesky"))]
    for ldl, lu, name in indefinite:
        time, memory = (float(ldl[column]) / float(lu[column]) for column in ("factor_s", "factor_mib"))
        if float(lu["factor_s"]) >= 0.1:
            print(f"Ldl over Lu on {name}: factorization {time:.2f}, memory {memory:.2f}")
    print("failures:")
    for (name, code), why in sorted(results.failures.items(), key=lambda item: (item[0][1], item[0][0])):
        print(f"  {code}, {name}: {why}")


def main(folder):
    tables = {int(path.stem): Results(path) for path in pathlib.Path(folder).glob("[0-9]*.tsv")}
    for threads, results in sorted(tables.items()):
        report(threads, results, tables.get(2))


if __name__ == "__main__":
    main(sys.argv[1])
