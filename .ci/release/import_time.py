"""Fails if `import krysp` takes more than 50 ms beyond `import numpy`, in the median of 11 fresh processes."""

import statistics
import subprocess
import sys

LIMIT = 0.050
CODE = "import numpy, time; start = time.perf_counter(); import krysp; print(time.perf_counter() - start)"
times = [float(subprocess.check_output([sys.executable, "-c", CODE])) for _ in range(11)]
median = statistics.median(times)
print(f"import krysp, beyond NumPy: median {1e3 * median:.1f} ms, {1e3 * min(times):.1f} to {1e3 * max(times):.1f} ms")
if median > LIMIT:
    sys.exit(f"more than {1e3 * LIMIT:.0f} ms")
