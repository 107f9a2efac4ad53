// pardiso FILE TYPE RUNS: the line of peer.hpp. TYPE is 11 (any matrix), 2 (positive definite) or -2 (symmetric); with a p
// behind it the nested dissection is the parallel one.
#include "peer.hpp"
#include <mkl_pardiso.h>

int main(int count, char **words) {
    if (count != 4) return 2;
    Matrix m(words[1]);
    int type = atoi(words[2]), n = m.n;
    bool parallel = strchr(words[2], 'p');
    // Counted from 1. Symmetric types take the upper triangle, whose diagonal must be complete.
    vector<int> starts(n + 1, 0), columns;
    vector<double> values;
    auto push = [&](int j, double value) { columns.push_back(j + 1), values.push_back(value); };
    for (int i = 0; i < n; i++) {
        bool diagonal = type == 11;
        starts[i] = (int)columns.size() + 1;
        for (int k = m.starts[i]; k < m.starts[i + 1]; k++) {
            int j = m.columns[k];
            if (type != 11 && j < i) continue;
            if (!diagonal && j > i) push(i, 0);
            diagonal = diagonal || j >= i;
            push(j, m.values[k]);
        }
        if (!diagonal) push(i, 0);
    }
    starts[n] = (int)columns.size() + 1;

    void *handle[64] = {};
    int options[64], one = 1, zero = 0, unused = 0, error = 0;
    double none = 0;
    auto phase = [&](int phase, double *b, double *x) {
        pardiso(handle, &one, &one, &type, &phase, &n, values.data(), starts.data(), columns.data(), &unused, &one, options, &zero, b, x, &error);
        return error ? "PARDISO error " + std::to_string(error) : string();
    };
    Code code;
    code.analyse = [&] {
        memset(handle, 0, sizeof handle);
        pardisoinit(handle, &type, options);
        if (parallel) options[1] = 3;
        return phase(11, &none, &none);
    };
    code.factorize = [&] { return phase(22, &none, &none); };
    code.solve = [&](const double *b, double *x) { return phase(33, (double *)b, x); };
    code.size = [&] { return Size{(double)(unsigned)options[17], options[16] / 1024.0}; };
    code.release = [&] { phase(-1, &none, &none); };
    return run(m, code, atoi(words[3]));
}
