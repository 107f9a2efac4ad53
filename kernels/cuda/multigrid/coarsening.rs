//! From one level to the next on a device: aggregates, smoothed prolongation, Galerkin product.

use super::aggregates::{aggregates, orthonormal};
use super::at_once::{self, Kept, Right};
use super::graph::{Blocks, Graph};
use super::numbering::Numbering;
use super::numbers::smoothing;
use super::products;
use super::prolongation::Smoothing;
use super::strength::strength;
use crate::cuda::device::Array;
use crate::cuda::device::error::Result;

/// What decides how a level becomes coarser, as the host has it.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// A connection is strong if it is at least this part of the strongest of either node.
    pub strength: f64,
    /// A node whose couplings add up to no more than this part of its diagonal is left out.
    pub dominant: f64,
    /// Of a mode on an aggregate, what is left beside those before it is left out if it is smaller.
    pub dependent: f64,
    /// What of a weak entry's diagonal must be left for it to be added there.
    pub positive: f64,
}

/// Vectors that span the near null space, a row of numbers for each row of the matrix.
#[derive(Debug)]
pub struct Modes {
    /// How many.
    pub count: usize,
    /// Their numbers.
    pub values: Array<f64>,
}

/// How a level becomes coarser. Its numbers are those of the matrix, and are made anew with it.
#[derive(Debug)]
pub struct Coarsening {
    rules: Rules,
    /// Strong connections, where blocks are numbers and not all are strong.
    strong: Option<Graph>,
    /// `T`, a row for each node.
    t: Blocks,
    prolongation: Graph,
    /// The kernels that make its numbers at once, if some do.
    at_once: Option<usize>,
    restriction: Graph,
    /// The block of `P` that each block of `Pᵀ` is.
    from: Array<u32>,
    product: Product,
    coarse: Graph,
    /// Whether `P` is `T`.
    plain: bool,
}

/// How `A P` is made.
#[derive(Debug)]
enum Product {
    /// On a pattern that is kept, as the product with `Pᵀ` is.
    Known(Graph),
    /// On a pattern that is kept, a thread for each row; the product with `Pᵀ` was found at once.
    Short(Graph),
    /// Anew each time, with this room for its rows.
    AtOnce(usize),
}

/// What a setup makes of a level.
#[derive(Debug)]
pub struct Made {
    /// How it becomes coarser.
    pub coarsening: Coarsening,
    /// The numbers of that.
    pub numbers: Numbers,
    /// The modes of the next level.
    pub modes: Modes,
}

/// The aggregates of a level, and what is constant on them.
#[derive(Debug)]
pub struct Aggregates {
    /// As in [`Coarsening`].
    strong: Option<Graph>,
    t: Blocks,
    members: Graph,
    /// The modes of the next level.
    modes: Modes,
}

impl Aggregates {
    /// Of a matrix and its modes. None where too little would be gained.
    pub fn new(a: &Blocks, modes: &Modes, rules: Rules) -> Result<Option<Aggregates>> {
        let (strong, left_out) = strength(a, rules.strength, rules.dominant)?;
        let joined = aggregates(strong.as_ref().unwrap_or(&a.graph), &left_out)?;
        let (nodes, size, count) = (a.graph.rows(), a.shape[0], joined.cols());
        if count == 0 || 10 * count * modes.count > 9 * nodes * size {
            return Ok(None);
        }
        let shape = [size, modes.count];
        let (members, values, below) = orthonormal(&joined, shape, &modes.values, rules.dependent)?;
        let modes = Modes { count: modes.count, values: below };
        let t = Blocks { graph: joined, shape, values };
        // what is added to a diagonal is there for constants alone
        let strong = strong.filter(|_| shape == [1, 1]);
        Ok(Some(Aggregates { strong, t, members, modes }))
    }

    /// Nodes numbered by these, and these in that order.
    pub fn numbered(self) -> Result<(Numbering, Aggregates)> {
        let Aggregates { strong, t, members, modes } = self;
        let numbering = Numbering::new(t.shape[0], &t.graph, &members)?;
        let strong = strong.map(|strong| numbering.rows(&strong, None, true)).transpose()?;
        let (graph, values) = numbering.rows(&t.graph, Some(&t), false)?;
        let (strong, t) = (strong.map(|(graph, _)| graph), Blocks { graph, shape: t.shape, values });
        Ok((numbering, Aggregates { strong, t, members, modes }))
    }
}

/// The numbers of a coarsening: `P`, `Pᵀ` and `Pᵀ A P`.
#[derive(Debug)]
pub struct Numbers {
    /// `P`
    pub prolongation: Blocks,
    /// `Pᵀ`
    pub restriction: Blocks,
    /// `Pᵀ A P`
    pub coarse: Blocks,
}

impl Made {
    /// Of a matrix, its inverse diagonal and its aggregates.
    pub fn new(
        a: &Blocks,
        inverse: &Array<f64>,
        omega: f64,
        aggregates: Aggregates,
        rules: Rules,
    ) -> Result<Made> {
        let Aggregates { strong, t, modes, .. } = aggregates;
        let shape = t.shape;
        let smoothing =
            Smoothing { a, strong: strong.as_ref(), t: &t, inverse, omega, positive: rules.positive };
        let Some((kernels, prolongation)) = smoothing.prolongation()? else {
            let coarsening = Coarsening::on(&a.graph, rules, strong, t)?;
            let numbers = coarsening.numbers(a, inverse, omega)?;
            return Ok(Made { coarsening, numbers, modes });
        };
        let (graph, from) = products::transposed_pattern(&prolongation.graph)?;
        let values = products::transposed(&prolongation, &from)?;
        let restriction = Blocks { graph, shape, values };
        let (product, coarse) = match galerkin(a, &prolongation, &restriction)? {
            Some(found) => found,
            None => {
                let product = products::product(a, &prolongation)?;
                let coarse = products::product(&restriction, &product)?;
                (Product::Known(product.graph), coarse)
            }
        };
        let coarsening = Coarsening {
            rules,
            strong,
            t,
            prolongation: prolongation.graph.clone(),
            at_once: Some(kernels),
            restriction: restriction.graph.clone(),
            from,
            product,
            coarse: coarse.graph.clone(),
            plain: false,
        };
        Ok(Made { coarsening, numbers: Numbers { prolongation, restriction, coarse }, modes })
    }
}

/// How `A P` of numbers is made, and `Pᵀ A P`; none where rows are too long.
fn galerkin(a: &Blocks, p: &Blocks, restriction: &Blocks) -> Result<Option<(Product, Blocks)>> {
    if [a.shape, p.shape] != [[1, 1]; 2] {
        return Ok(None);
    }
    if let Some(product) = products::short(a, p)? {
        let coarse = at_once::found(restriction, &Right::Blocks(&product))?;
        let coarse = coarse.map(Kept::ordered).transpose()?.flatten();
        return Ok(coarse.map(|coarse| (Product::Short(product.graph), coarse)));
    }
    let Some(product) = at_once::found(a, &Right::Blocks(p))? else { return Ok(None) };
    let coarse = at_once::found(restriction, &Right::Kept(&product))?;
    let coarse = coarse.map(Kept::ordered).transpose()?.flatten();
    Ok(coarse.map(|coarse| (Product::AtOnce(product.room()), coarse)))
}

impl Coarsening {
    /// On aggregates and modes that are known: `T` has a row of at most one block for each node, `strong` is there where blocks
    /// are numbers and not all of them strong.
    pub fn on(a: &Graph, rules: Rules, strong: Option<Graph>, t: Blocks) -> Result<Coarsening> {
        assert!(t.graph.rows() == a.rows() && strong.as_ref().is_none_or(|strong| strong.rows() == a.rows()));
        let prolongation = products::pattern(strong.as_ref().unwrap_or(a), &t.graph, Some(&t.graph))?;
        Coarsening::with(a, rules, strong, t, prolongation)
    }

    /// On aggregates that stay as they are: `P = T`, whose numbers are kept.
    pub fn plain(a: &Graph, rules: Rules, t: Blocks) -> Result<Coarsening> {
        assert!(t.graph.rows() == a.rows(), "a row for each node");
        let prolongation = t.graph.clone();
        Ok(Coarsening { plain: true, ..Coarsening::with(a, rules, None, t, prolongation)? })
    }

    fn with(
        a: &Graph,
        rules: Rules,
        strong: Option<Graph>,
        t: Blocks,
        prolongation: Graph,
    ) -> Result<Coarsening> {
        let (restriction, from) = products::transposed_pattern(&prolongation)?;
        let product = products::pattern(a, &prolongation, None)?;
        let coarse = products::pattern(&restriction, &product, None)?;
        let (product, at_once, plain) = (Product::Known(product), None, false);
        Ok(Coarsening { rules, strong, t, prolongation, at_once, restriction, from, product, coarse, plain })
    }

    /// Whether it was made by [`Coarsening::plain`].
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    /// `P`, `Pᵀ` and `Pᵀ A P` for a matrix, its inverse diagonal, and `ω`.
    pub fn numbers(&self, a: &Blocks, inverse: &Array<f64>, omega: f64) -> Result<Numbers> {
        let [rows, modes] = self.t.shape;
        let (strong, positive) = (self.strong.as_ref(), self.rules.positive);
        let values = match self.at_once {
            Some(kernels) => {
                let smoothing = Smoothing { a, strong, t: &self.t, inverse, omega, positive };
                smoothing.numbers(kernels, &self.prolongation)?
            }
            None => {
                let s = smoothing(a, strong, inverse, omega, positive)?;
                products::numbers(&s, &self.t, &self.prolongation)?
            }
        };
        let prolongation = Blocks { graph: self.prolongation.clone(), shape: [rows, modes], values };
        let values = products::transposed(&prolongation, &self.from)?;
        let restriction = Blocks { graph: self.restriction.clone(), shape: [modes, rows], values };
        let coarse = self.galerkin(a, &prolongation, &restriction)?;
        Ok(Numbers { prolongation, restriction, coarse })
    }

    /// `Tᵀ A T`
    pub fn sums(&self, a: &Blocks) -> Result<Blocks> {
        let ([rows, modes], values) = (self.t.shape, products::transposed(&self.t, &self.from)?);
        let restriction = Blocks { graph: self.restriction.clone(), shape: [modes, rows], values };
        self.galerkin(a, &self.t, &restriction)
    }

    fn galerkin(&self, a: &Blocks, prolongation: &Blocks, restriction: &Blocks) -> Result<Blocks> {
        let [rows, modes] = self.t.shape;
        let values = match &self.product {
            Product::Known(graph) => {
                let values = products::numbers(a, prolongation, graph)?;
                let product = Blocks { graph: graph.clone(), shape: [rows, modes], values };
                products::numbers(restriction, &product, &self.coarse)?
            }
            Product::Short(graph) => {
                let values = products::numbers(a, prolongation, graph)?;
                let product = Blocks { graph: graph.clone(), shape: [1, 1], values };
                at_once::numbers(restriction, &Right::Blocks(&product), &self.coarse)?
            }
            &Product::AtOnce(room) => {
                let product = at_once::product(a, &Right::Blocks(prolongation), room)?;
                at_once::numbers(restriction, &Right::Kept(&product), &self.coarse)?
            }
        };
        Ok(Blocks { graph: self.coarse.clone(), shape: [modes, modes], values })
    }

    /// Where the next level has blocks.
    pub fn coarse(&self) -> &Graph {
        &self.coarse
    }

    /// The aggregates: where each node's row of `T` begins, and the aggregate of each entry.
    pub fn aggregates(&self) -> &Graph {
        &self.t.graph
    }
}
