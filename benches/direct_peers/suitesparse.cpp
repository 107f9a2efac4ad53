// suitesparse FILE umfpack|klu|cholmod RUNS: the line of peer.hpp.
#include "peer.hpp"
#include <cholmod.h>
#include <klu.h>
#include <umfpack.h>
using std::to_string;

// The matrix in compressed columns, which all three codes take.
struct Columns {
    vector<int> starts, rows;
    vector<double> values;
    explicit Columns(const Matrix &m) : starts(m.n + 1, 0), rows(m.nnz), values(m.nnz) {
        for (int j : m.columns) starts[j + 1]++;
        for (int j = 0; j < m.n; j++) starts[j + 1] += starts[j];
        vector<int> next(starts.begin(), starts.end() - 1);
        for (int i = 0; i < m.n; i++)
            for (int k = m.starts[i]; k < m.starts[i + 1]; k++) {
                int at = next[m.columns[k]]++;
                rows[at] = i, values[at] = m.values[k];
            }
    }
};

static Code umfpack(Matrix &m, Columns &a) {
    static void *symbolic, *numeric;
    static double control[UMFPACK_CONTROL], info[UMFPACK_INFO];
    umfpack_di_defaults(control);
    control[UMFPACK_IRSTEP] = 0;   // refinement is that of peer.hpp
    auto why = [](int status) { return status == UMFPACK_OK ? string() : "UMFPACK status " + to_string(status); };
    int *p = a.starts.data(), *i = a.rows.data();
    double *x = a.values.data();
    Code code;
    code.analyse = [=, &m] { return why(umfpack_di_symbolic(m.n, m.n, p, i, x, &symbolic, control, info)); };
    code.factorize = [=] { return why(umfpack_di_numeric(p, i, x, symbolic, &numeric, control, info)); };
    code.solve = [=](const double *b, double *y) { return why(umfpack_di_solve(UMFPACK_A, p, i, x, y, b, numeric, control, info)); };
    code.size = [] {
        return Size{info[UMFPACK_LNZ] + info[UMFPACK_UNZ], info[UMFPACK_NUMERIC_SIZE] * info[UMFPACK_SIZE_OF_UNIT] / (1 << 20)};
    };
    code.release = [] { umfpack_di_free_symbolic(&symbolic), umfpack_di_free_numeric(&numeric); };
    return code;
}

static Code klu(Matrix &m, Columns &a) {
    static klu_common common;
    static klu_symbolic *symbolic;
    static klu_numeric *numeric;
    klu_defaults(&common);
    auto failed = [] { return "KLU status " + to_string(common.status); };
    Code code;
    code.analyse = [=, &m, &a] {
        symbolic = klu_analyze(m.n, a.starts.data(), a.rows.data(), &common);
        if (!symbolic) return failed();
        return symbolic->lnz + symbolic->unz > 1e8 ? string("more than 1e8 expected entries") : string();
    };
    code.factorize = [=, &a] {
        numeric = klu_factor(a.starts.data(), a.rows.data(), a.values.data(), symbolic, &common);
        return numeric && common.status == KLU_OK ? string() : failed();
    };
    code.solve = [=, &m](const double *b, double *x) {
        memcpy(x, b, 8LL * m.n);
        return klu_solve(symbolic, numeric, m.n, 1, x, &common) ? string() : failed();
    };
    code.size = [] { return Size{(double)numeric->lnz + numeric->unz + numeric->nzoff, (double)common.memusage / (1 << 20)}; };
    code.release = [] { klu_free_numeric(&numeric, &common), klu_free_symbolic(&symbolic, &common); };
    return code;
}

static Code cholmod(Matrix &m, Columns &a) {
    static cholmod_common common;
    static cholmod_factor *factor;
    static cholmod_sparse matrix = {};
    cholmod_start(&common);
    common.print = 0;
    common.quick_return_if_not_posdef = 1;
    matrix.nrow = matrix.ncol = m.n, matrix.nzmax = m.nnz;
    matrix.p = a.starts.data(), matrix.i = a.rows.data(), matrix.x = a.values.data();
    matrix.stype = 1, matrix.itype = CHOLMOD_INT, matrix.xtype = CHOLMOD_REAL, matrix.dtype = CHOLMOD_DOUBLE;
    matrix.sorted = 1, matrix.packed = 1;
    auto why = [] { return common.status == CHOLMOD_OK ? string() : "CHOLMOD status " + to_string(common.status); };
    Code code;
    code.analyse = [=] { factor = cholmod_analyze(&matrix, &common); return why(); };
    code.factorize = [=] {
        cholmod_factorize(&matrix, factor, &common);
        return common.status == CHOLMOD_OK && factor->minor < factor->n ? string("not positive definite") : why();
    };
    code.solve = [=, &m](const double *b, double *x) {
        cholmod_dense right = {};
        right.nrow = right.nzmax = right.d = m.n, right.ncol = 1, right.x = (void *)b;
        right.xtype = CHOLMOD_REAL, right.dtype = CHOLMOD_DOUBLE;
        cholmod_dense *y = cholmod_solve(CHOLMOD_A, factor, &right, &common);
        if (!y) return why();
        memcpy(x, y->x, 8LL * m.n);
        cholmod_free_dense(&y, &common);
        return string();
    };
    code.size = [] {
        double bytes = factor->is_super ? factor->xsize * 8.0 + factor->ssize * 4.0 : factor->nzmax * 12.0;
        return Size{common.lnz, bytes / (1 << 20)};
    };
    code.release = [] { cholmod_free_factor(&factor, &common); };
    return code;
}

int main(int count, char **words) {
    if (count != 4) return 2;
    Matrix m(words[1]);
    Columns a(m);
    string name = words[2];
    return run(m, name == "umfpack" ? umfpack(m, a) : name == "klu" ? klu(m, a) : cholmod(m, a), atoi(words[3]));
}
