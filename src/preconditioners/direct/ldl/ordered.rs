//! Analysis of a symmetric matrix before its factorization: matching, scaling and ordering.

use super::*;

/// A matrix that is scaled, and ordered, but not factorized.
#[derive(Debug)]
pub(crate) struct OrderedLdl<T: Real> {
    budget: Budget,
    scaling: Scaling<T>,
    matched: Option<Vec<u32>>,
    matrix: Csr<T>,
    /// The transpose of `matrix`, unless that has a symmetric pattern.
    transposed: Option<Csr<T>>,
    tree: Tree,
}

impl<T: Real> OrderedLdl<T> {
    /// Orders a matrix. `order` is an ordering of the pattern of `A + Aᵀ`, if it has been computed.
    pub(crate) fn new(csr: &Csr<T>, order: Option<&[u32]>) -> Result<OrderedLdl<T>> {
        let budget = Budget::new(NAME, DirectOptions::default(), csr.rows());
        OrderedLdl::on_tree(csr, budget, None, order)
    }

    /// Computes the matching; if it gives the same rows as in `known`, the tree of that factorization is reused. Without a
    /// matching, `order` is used instead of a new ordering.
    pub(super) fn on_tree(
        csr: &Csr<T>,
        budget: Budget,
        known: Option<(&Option<Vec<u32>>, &Tree)>,
        order: Option<&[u32]>,
    ) -> Result<OrderedLdl<T>> {
        check_square(NAME, csr)?;
        csr.check_finite()?;
        // the first test accepts differences up to rounding relative to √(aᵢᵢ aⱼⱼ), but needs a stored entry
        // at (j, i); the second compares with the entries themselves, and accepts a stored zero without a
        // mirrored entry
        if check_symmetric(csr).is_err() {
            csr.check_symmetric(ROUNDED * T::EPSILON)?;
        }
        let (scaling, matched) = if Shape::of(csr, csr, &largest(csr)).is_weak() {
            let matching = Matching::of(csr)?;
            (Scaling::matched(csr, &matching)?.symmetrized(), Some(matching.rows().to_vec()))
        } else {
            (Scaling::equilibrated(csr)?.symmetrized(), None)
        };
        let matrix = scaling.matrix(csr)?;
        // the pattern of the transpose may differ by stored zeros without a mirrored entry
        let transposed = if is_mirrored(&matrix) { None } else { Some(transposed(&matrix)?) };
        let matrices = [&matrix, transposed.as_ref().unwrap_or(&matrix)];
        let tree = match known {
            Some((rows, tree)) if *rows == matched => tree.clone(),
            _ => {
                let both = Both::new(matrices);
                let expected = match (&matched, order) {
                    (Some(rows), _) => Expected::new(paired(matrices, rows)?, &both)?,
                    (None, Some(order)) => Expected::new(order.to_vec(), &both)?,
                    (None, None) => fill::reducing(csr.rows(), csr.nnz(), &both)?.expected(&both)?,
                };
                Tree::new(expected, &both, [size_of::<T>(); 2], budget)?
            }
        };
        Ok(OrderedLdl { budget, scaling, matched, matrix, transposed, tree })
    }

    /// Number of multiplications that the factorization is expected to take.
    pub(crate) fn work(&self) -> f64 {
        self.tree.work()
    }

    /// Factorizes, but refuses a matrix for which delayed pivots take [`GROWTH`] times the expected memory.
    pub(crate) fn within_memory(self, csr: &Csr<T>) -> Result<Ldl<T>> {
        self.factorized(csr, GROWTH)
    }

    /// Factorizes the matrix, of which `csr` is the one without scaling. `growth` limits the memory, relative to factors without delayed
    /// pivots.
    pub(super) fn factorized(self, csr: &Csr<T>, growth: f64) -> Result<Ldl<T>> {
        let OrderedLdl { budget, scaling, matched, matrix, transposed, tree } = self;
        let columns = transposed.as_ref().unwrap_or(&matrix);
        let most = (growth * (tree.numbers() * size_of::<T>()) as f64) as usize;
        let mut progress = Progress::new(&tree, columns, Kind::Symmetric).with_most(most);
        progress.run(&tree, columns, Pivoting::Regular, budget, f64::INFINITY)?;
        Ok(Ldl {
            space: csr.source().domain().clone(),
            pattern: csr.source().pattern.clone(),
            limit: budget.limit(),
            growth,
            scaling,
            matched,
            tree,
            factors: progress.factors(),
            norm: condition::norm(csr),
            workspace: Mutex::default(),
        })
    }
}
