//! Coarsening of a level on a device: aggregation, smoothed prolongation, Galerkin product.

use super::aggregates::{aggregates, orthonormal};
use super::graph::{Blocks, Graph};
use super::numbers::{constants_of, smoothing};
use super::permutation::Permutation;
use super::products;
use super::prolongation::Smoothing;
use super::single_pass::{self, Kept, Right};
use super::strength::strength;
use crate::cuda::device::Array;
use crate::cuda::device::error::{Error, Result};
use crate::multigrid;

/// The near-null space of a level on a device.
pub type NearNullSpace = multigrid::NearNullSpace<Array<f64>>;

/// Patterns and aggregates of a coarsening. They remain valid when the values of the matrix change;
/// [`Numbers`] are then recomputed.
#[derive(Debug)]
pub struct Coarsening {
    /// Strong connections, for 1×1 blocks; `None` for larger blocks, and if all are strong.
    strong: Option<Graph>,
    /// Tentative prolongator `T`, a row for each node; the column of a node's block is its aggregate.
    pub t: Blocks,
    /// Pattern of `P`.
    prolongation: Graph,
    /// Index of the single-pass kernels (prolongation.rs) that compute the values of `P`; `None` if `P` is
    /// computed by general products instead.
    single_pass: Option<usize>,
    /// Pattern of `Pᵀ`.
    restriction: Graph,
    /// Position in `P` of each block of `Pᵀ`.
    from: Array<u32>,
    product: Product,
    /// Pattern of `Pᵀ A P`.
    pub coarse: Graph,
    /// True if `P = T` (unsmoothed aggregation).
    pub unsmoothed: bool,
}

/// Method by which `A P` is computed.
#[derive(Debug)]
pub enum Product {
    /// Computes `A P` on its known pattern with the kernels of products.rs, and `Pᵀ (A P)` likewise.
    Known(Graph),
    /// Computes `A P`, pattern and values, in a single pass each time. The field is an index into `CAPACITY`
    /// of `single_pass.rs`.
    SinglePass(usize),
}

/// The aggregates of a level, and the tentative prolongator on them.
#[derive(Debug)]
pub struct Aggregates {
    /// Strong connections, for 1×1 blocks; `None` for larger blocks, and if all are strong.
    pub strong: Option<Graph>,
    /// The tentative prolongator, a row for each node.
    pub t: Blocks,
    /// Pattern of `Tᵀ`.
    members: Graph,
    /// Near-null-space vectors of the next level.
    pub modes: NearNullSpace,
}

impl Aggregates {
    /// Computes the tentative prolongator: `joined` has a row of at most one entry, its aggregate, for each node of `size`
    /// unknowns.
    pub fn of(
        joined: Graph,
        strong: Option<Graph>,
        size: usize,
        modes: &NearNullSpace,
    ) -> Result<Aggregates> {
        let shape = [size, modes.count];
        let (members, values, below) = orthonormal(&joined, shape, &modes.values)?;
        let modes = NearNullSpace { count: modes.count, values: below };
        let t = Blocks { graph: joined, shape, values };
        // weak entries are lumped into the diagonal for scalar problems only
        let strong = strong.filter(|_| shape == [1, 1]);
        Ok(Aggregates { strong, t, members, modes })
    }

    /// Returns the permutation that orders nodes aggregate by aggregate, and the aggregates in the new order.
    pub fn permuted(self) -> Result<(Permutation, Aggregates)> {
        let Aggregates { strong, t, members, modes } = self;
        let permutation = Permutation::new(t.shape[0], &t.graph, &members)?;
        let strong = strong.map(|strong| permutation.rows(&strong, None, true)).transpose()?;
        let (graph, values) = permutation.rows(&t.graph, Some(&t), false)?;
        let (strong, t) = (strong.map(|(graph, _)| graph), Blocks { graph, shape: t.shape, values });
        Ok((permutation, Aggregates { strong, t, members, modes }))
    }
}

/// Aggregates the nodes of a matrix: the pattern of the tentative prolongator, and the strong connections, those of at least
/// the fraction `theta` of the strongest connection of either node. If the matrix has
/// more columns than rows (ghosts, see [`shared`](super::shared)), `with_ghosts` takes one number for each row and appends
/// those of ghosts; aggregates have own nodes only.
#[allow(clippy::type_complexity)]
pub fn found<E: From<Error>>(
    a: &Blocks,
    theta: f64,
    with_ghosts: &mut dyn FnMut(Array<f64>) -> std::result::Result<Array<f64>, E>,
) -> std::result::Result<(Graph, Option<Graph>), E> {
    let (strong, left_out) = strength(a, theta, with_ghosts)?;
    let graph = strong.as_ref().unwrap_or(&a.graph);
    let joined = match graph.cols() > graph.rows() {
        true => aggregates(&graph.without_ghosts()?, &left_out)?,
        false => aggregates(graph, &left_out)?,
    };
    Ok((joined, strong))
}

/// Values of a coarsening: `P`, `Pᵀ` and `Pᵀ A P`.
#[derive(Debug)]
pub struct Numbers {
    /// `P`
    pub prolongation: Blocks,
    /// `Pᵀ`
    pub restriction: Blocks,
    /// `Pᵀ A P`
    pub coarse: Blocks,
}

impl Coarsening {
    /// Coarsens a matrix, given its aggregates; also returns the near-null space of the next level. `smoothed` has
    /// the inverse diagonal and the damping factor `ω` of the prolongator; `None` means unsmoothed aggregation of a
    /// scalar matrix, whose modes are constants on all levels.
    pub fn new(
        a: &Blocks,
        smoothed: Option<(&Array<f64>, f64)>,
        aggregates: Aggregates,
    ) -> Result<(Coarsening, Numbers, NearNullSpace)> {
        let Aggregates { mut strong, mut t, mut modes, .. } = aggregates;
        let (single_pass, prolongation) = match smoothed {
            Some(smoothed) => prolongation(a, strong.as_ref(), &t, smoothed)?,
            None => {
                let values = constants_of(t.values.device(), t.graph.cols(), 1)?;
                (strong, t, modes) = (None, ones(&t.graph)?, NearNullSpace { count: 1, values });
                (None, ones(&t.graph)?)
            }
        };
        let (restriction, from) = transposed(&prolongation)?;
        let (product, coarse) = galerkin(a, &prolongation, &restriction)?;
        let coarsening = Coarsening {
            strong,
            t,
            prolongation: prolongation.graph.clone(),
            single_pass,
            restriction: restriction.graph.clone(),
            from,
            product,
            coarse: coarse.graph.clone(),
            unsmoothed: smoothed.is_none(),
        };
        Ok((coarsening, Numbers { prolongation, restriction, coarse }, modes))
    }
}

/// The smoothed prolongator, given the inverse diagonal and the damping factor `ω`, and the index of the single-pass
/// kernels that computed it, if they did.
pub fn prolongation(
    a: &Blocks,
    strong: Option<&Graph>,
    t: &Blocks,
    (inverse, omega): (&Array<f64>, f64),
) -> Result<(Option<usize>, Blocks)> {
    let smoothing = Smoothing { a, strong, t, inverse, omega };
    Ok(match smoothing.prolongation()? {
        Some((kernels, prolongation)) => (Some(kernels), prolongation),
        None => (None, smoothing.by_products(None)?),
    })
}

/// A matrix of ones.
pub fn ones(graph: &Graph) -> Result<Blocks> {
    let values = constants_of(graph.device(), graph.entries(), 1)?;
    Ok(Blocks { graph: graph.clone(), shape: [1, 1], values })
}

impl Smoothing<'_> {
    /// `P` by general products, on its pattern if that is known.
    fn by_products(&self, known: Option<&Graph>) -> Result<Blocks> {
        let Smoothing { a, strong, t, inverse, omega } = *self;
        let graph = match known {
            Some(graph) => graph.clone(),
            None => products::pattern(strong.unwrap_or(&a.graph), &t.graph, Some(&t.graph))?,
        };
        let values = products::numbers(&smoothing(a, strong, inverse, omega)?, t, &graph)?;
        Ok(Blocks { graph, shape: t.shape, values })
    }
}

/// The transpose, and for each of its blocks the position in `a`.
pub fn transposed(a: &Blocks) -> Result<(Blocks, Array<u32>)> {
    let (graph, from) = products::transposed_pattern(&a.graph)?;
    let values = products::transposed(a, &from)?;
    Ok((Blocks { graph, shape: [a.shape[1], a.shape[0]], values }, from))
}

/// `R A P`, and how `A P` was computed.
pub fn galerkin(a: &Blocks, p: &Blocks, r: &Blocks) -> Result<(Product, Blocks)> {
    if let Some(found) = galerkin_of_short_rows(a, p, r)? {
        return Ok(found);
    }
    let product = products::product(a, p)?;
    let coarse = products::product(r, &product)?;
    Ok((Product::Known(product.graph), coarse))
}

/// Computes `R A P` like [`galerkin`], for scalar matrices; `None` if blocks are not 1×1 or rows are too long.
fn galerkin_of_short_rows(a: &Blocks, p: &Blocks, r: &Blocks) -> Result<Option<(Product, Blocks)>> {
    if [a.shape, p.shape] != [[1, 1]; 2] {
        return Ok(None);
    }
    if let Some(product) = products::short(a, p)? {
        let coarse = single_pass::found(r, &Right::Blocks(&product))?;
        let coarse = coarse.map(Kept::ordered).transpose()?.flatten();
        return Ok(coarse.map(|coarse| (Product::Known(product.graph), coarse)));
    }
    let Some(product) = single_pass::found(a, &Right::Blocks(p))? else { return Ok(None) };
    let coarse = single_pass::found(r, &Right::Kept(&product))?;
    let coarse = coarse.map(Kept::ordered).transpose()?.flatten();
    Ok(coarse.map(|coarse| (Product::SinglePass(product.capacity), coarse)))
}

impl Coarsening {
    /// Coarsening with known aggregates: `t` has a row of at most one block for each node; `strong` must be
    /// `None` for larger blocks than 1×1, and if all connections are strong. If `unsmoothed`, `P = T`, whose values
    /// must be ones.
    pub fn known(a: &Graph, strong: Option<Graph>, t: Blocks, unsmoothed: bool) -> Result<Coarsening> {
        assert!(t.graph.rows() == a.rows() && strong.as_ref().is_none_or(|strong| strong.rows() == a.rows()));
        let prolongation = match unsmoothed {
            true => t.graph.clone(),
            false => products::pattern(strong.as_ref().unwrap_or(a), &t.graph, Some(&t.graph))?,
        };
        let (restriction, from) = products::transposed_pattern(&prolongation)?;
        let product = products::pattern(a, &prolongation, None)?;
        let coarse = products::pattern(&restriction, &product, None)?;
        let (product, single_pass) = (Product::Known(product), None);
        Ok(Coarsening {
            strong,
            t,
            prolongation,
            single_pass,
            restriction,
            from,
            product,
            coarse,
            unsmoothed,
        })
    }

    /// `P`, `Pᵀ` and `Pᵀ A P` for a matrix, its inverse diagonal and the damping factor `ω`.
    pub fn numbers(&self, a: &Blocks, inverse: &Array<f64>, omega: f64) -> Result<Numbers> {
        let [rows, modes] = self.t.shape;
        let smoothing = Smoothing { a, strong: self.strong.as_ref(), t: &self.t, inverse, omega };
        let prolongation = match self.single_pass {
            _ if self.unsmoothed => ones(&self.t.graph)?,
            Some(kernels) => {
                let values = smoothing.numbers(kernels, &self.prolongation)?;
                Blocks { graph: self.prolongation.clone(), shape: [rows, modes], values }
            }
            None => smoothing.by_products(Some(&self.prolongation))?,
        };
        let values = products::transposed(&prolongation, &self.from)?;
        let restriction = Blocks { graph: self.restriction.clone(), shape: [modes, rows], values };
        let coarse = self.galerkin(a, &prolongation, &restriction)?;
        Ok(Numbers { prolongation, restriction, coarse })
    }

    fn galerkin(&self, a: &Blocks, prolongation: &Blocks, restriction: &Blocks) -> Result<Blocks> {
        let [rows, modes] = self.t.shape;
        let values = match &self.product {
            Product::Known(graph) => {
                let values = products::numbers(a, prolongation, graph)?;
                let product = Blocks { graph: graph.clone(), shape: [rows, modes], values };
                products::numbers(restriction, &product, &self.coarse)?
            }
            &Product::SinglePass(capacity) => {
                let product = single_pass::product(a, &Right::Blocks(prolongation), capacity)?;
                single_pass::numbers(restriction, &Right::Kept(&product), &self.coarse)?
            }
        };
        Ok(Blocks { graph: self.coarse.clone(), shape: [modes, modes], values })
    }
}
