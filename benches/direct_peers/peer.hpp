// A matrix in compressed rows from a file, the normwise backward error, and the least time of several runs.
#pragma once
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>
using std::string;
using std::vector;

static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A file has int64 n, nnz; int32 starts[n + 1], columns[nnz]; double values[nnz]. The right-hand side is A times ones.
struct Matrix {
    int n = 0, nnz = 0;
    double norm = 0, norm_b = 0;   // maximum norms
    vector<int> starts, columns;
    vector<double> values, b, x;

    explicit Matrix(const char *path) {
        FILE *file = fopen(path, "rb");
        int64_t sizes[2] = {0, 0};
        if (!file || fread(sizes, 8, 2, file) != 2) fail(path);
        n = (int)sizes[0], nnz = (int)sizes[1];
        starts.resize(n + 1), columns.resize(nnz), values.resize(nnz), b.assign(n, 0), x.assign(n, 0);
        size_t read = fread(starts.data(), 4, n + 1, file) + fread(columns.data(), 4, nnz, file) + fread(values.data(), 8, nnz, file);
        if (read != (size_t)n + 1 + 2 * (size_t)nnz) fail(path);
        fclose(file);
        for (int i = 0; i < n; i++) {
            double sum = 0;
            for (int k = starts[i]; k < starts[i + 1]; k++) sum += fabs(values[k]), b[i] += values[k];
            norm = std::max(norm, sum), norm_b = std::max(norm_b, fabs(b[i]));
        }
    }
    static void fail(const char *path) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(2);
    }
    // Writes b - A x to r, and returns the backward error.
    double error(vector<double> &r) const {
        double norm_r = 0, norm_x = 0;
        bool finite = true;
        for (int i = 0; i < n; i++) {
            long double sum = b[i];
            for (int k = starts[i]; k < starts[i + 1]; k++) sum -= (long double)values[k] * x[columns[k]];
            r[i] = (double)sum;
            norm_r = std::max(norm_r, fabs(r[i])), norm_x = std::max(norm_x, fabs(x[i]));
            finite = finite && std::isfinite(r[i]) && std::isfinite(x[i]);
        }
        return finite ? norm_r / (norm * norm_x + norm_b) : INFINITY;
    }
};

struct Size { double entries = 0, mib = 0; };
// What a direct solver does. A step returns an empty string, or why it failed.
struct Code {
    std::function<string()> analyse, factorize;
    std::function<string(const double *, double *)> solve;
    std::function<Size()> size;
    std::function<void()> release;
};

// Runs a code at most so many times and for about a second, and prints, separated by tabs: seconds of analysis, factorization and
// one solve of the fastest run; the backward error, and its least value in two steps of refinement; entries and MiB of the
// factors. Or "failed" and the reason.
static int run(Matrix &m, const Code &code, int runs) {
    double best[3] = {INFINITY, INFINITY, INFINITY}, total = INFINITY, spent = 0, plain = INFINITY, refined = INFINITY;
    Size size;
    auto failed = [](const string &why) { printf("failed\t%s\n", why.c_str()); return 1; };
    for (int run = 0; run < runs && (run == 0 || spent < 1.0); run++) {
        double began = now();
        string why = code.analyse();
        double analysed = now();
        if (why.empty()) why = code.factorize();
        double factorized = now(), solve = INFINITY;
        if (!why.empty()) return failed(why);
        for (int k = 0; k < 5; k++) {
            double start = now();
            why = code.solve(m.b.data(), m.x.data());
            solve = std::min(solve, now() - start);
            if (!why.empty()) return failed(why);
        }
        if (factorized - began + solve < total) {
            total = factorized - began + solve;
            best[0] = analysed - began, best[1] = factorized - analysed, best[2] = solve;
        }
        if (run == 0) {
            vector<double> r(m.n), d(m.n);
            size = code.size();
            plain = refined = m.error(r);
            for (int k = 0; k < 2; k++) {
                code.solve(r.data(), d.data());
                for (int i = 0; i < m.n; i++) m.x[i] += d[i];
                refined = std::min(refined, m.error(r));
            }
        }
        spent += now() - began;
        code.release();
    }
    printf("%.6f\t%.6f\t%.6f\t%.1e\t%.1e\t%.0f\t%.1f\n", best[0], best[1], best[2], plain, refined, size.entries, size.mib);
    return 0;
}
