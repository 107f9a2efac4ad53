//! Several vectors of one space (memory, length and order of unknowns), which operators multiply together.
//!
//! Methods are written over [`Vector`], so one step of a method on multivectors is one step of as many
//! independent recurrences, with one product for all of them. Each column undergoes the operations of a
//! single vector in the same order, with the same results, bitwise where operations are reproducible.

use crate::lockstep::Lockstep;
use crate::{BasicVector, ElemOf, Error, Result, ScalarOf, Scalars, Space, SpaceOf, Vector, VectorBasis};
use num_traits::Zero;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Several vectors of one space: the columns of a tall matrix, each stored separately.
///
/// ```
/// use krysp::solvers::MultiVector;
/// use krysp::{HostVector, LinearOperator, gallery};
///
/// let a = gallery::poisson::<f64>(&[10, 10])?;
/// let columns = vec![HostVector::from_slice(&[1.0; 100]), HostVector::from_slice(&[2.0; 100])];
/// let x = MultiVector::from_columns(a.domain(), columns)?;
/// let mut y = MultiVector::zeros(a.range(), 2)?;
/// a.apply_many(&x, &mut y)?;
/// assert_eq!(y.columns()[1].as_slice()[0], 2.0 * y.columns()[0].as_slice()[0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct MultiVector<V: Vector> {
    columns: Vec<V>,
    space: MultiSpace<SpaceOf<V>>,
}

impl<V: Vector> MultiVector<V> {
    /// Creates `columns` zero vectors.
    pub fn zeros(space: &SpaceOf<V>, columns: usize) -> Result<Self> {
        MultiSpace::new(space, columns).zeros()
    }

    /// Groups existing vectors. Returns an error if one belongs to another space.
    pub fn from_columns(space: &SpaceOf<V>, columns: Vec<V>) -> Result<Self> {
        for column in &columns {
            let (what, got, expected) = ("a column", column.space().len(), space.len());
            if got != expected {
                return Err(Error::Size { what, got, of: "the space", expected });
            }
            if column.space() != space {
                return Err(Error::Space { what, than: "the operator" });
            }
        }
        Ok(MultiVector { space: MultiSpace::new(space, columns.len()), columns })
    }

    /// The columns.
    pub fn columns(&self) -> &[V] {
        &self.columns
    }

    /// Mutable access to the columns.
    pub fn columns_mut(&mut self) -> &mut [V] {
        &mut self.columns
    }

    /// Returns the columns.
    pub fn into_columns(self) -> Vec<V> {
        self.columns
    }

    /// Makes this a vector of `space`: operations change only the columns that are open there.
    pub(crate) fn join(&mut self, space: &MultiSpace<SpaceOf<V>>) {
        self.space = space.clone();
    }

    /// The columns that an operator multiplies: pairs of `x` and `y`, where `y` is open. For implementations
    /// of [`LinearOperator::apply_many`](crate::LinearOperator::apply_many). Refuses different numbers of
    /// columns.
    pub fn open_pairs<'m>(x: &'m Self, y: &'m mut Self) -> Result<impl Iterator<Item = (&'m V, &'m mut V)>> {
        let (got, expected) = (y.columns.len(), x.columns.len());
        if got != expected {
            return Err(Error::Columns { what: "`y`", got, of: "`x`", expected });
        }
        let space = &y.space;
        let pairs = x.columns.iter().zip(&mut y.columns).enumerate();
        Ok(pairs.filter(move |(column, _)| space.is_open(*column)).map(|(_, pair)| pair))
    }

    /// Inner products `⟨x_j, y_j⟩` of the open columns (not closed, see [`MultiSpace`]) of `x` and `self`
    /// (`y`), with operands in this order.
    pub(crate) fn dot_with(&self, x: &Self) -> ScalarOf<MultiVector<V>> {
        let [dots] = self.measure(|j, y| [x.columns[j].dot(y)]);
        dots
    }

    /// Scalars of the open columns, in order; zeros for the others.
    pub fn scalars_of_open(&self, open: impl IntoIterator<Item = ScalarOf<V>>) -> ScalarOf<MultiVector<V>> {
        let mut open = open.into_iter();
        let next = |column| if self.space.is_open(column) { open.next() } else { None };
        let columns = (0..self.columns.len()).map(next);
        Scalars::new(columns.map(|scalar| scalar.unwrap_or(ElemOf::<V>::zero().into())))
    }

    /// Changes the open columns.
    fn update(&mut self, mut change: impl FnMut(usize, &mut V)) {
        V::together(&self.space.of_column, || {
            for (column, vector) in self.columns.iter_mut().enumerate() {
                if self.space.is_open(column) {
                    change(column, vector);
                }
            }
        });
    }

    /// `r ← r + a q; z ← d ∘ r; [‖r‖², ⟨r, z⟩]` of each open column, with one `d` for all.
    pub(crate) fn axpy_multiply_dot_by(
        &mut self,
        a: &ScalarOf<Self>,
        q: &Self,
        d: &V,
        z: &mut Self,
    ) -> [ScalarOf<Self>; 2] {
        self.reduce(|j, r| r.axpy_multiply_dot(a.column(j), &q.columns[j], d, &mut z.columns[j]))
    }

    /// Changes the open columns, and collects `N` scalars of each; zeros of the others.
    fn reduce<const N: usize>(
        &mut self,
        mut change: impl FnMut(usize, &mut V) -> [ScalarOf<V>; N],
    ) -> [ScalarOf<MultiVector<V>>; N] {
        let space = &self.space;
        V::together(&space.of_column, || {
            collected(self.columns.iter_mut().enumerate().map(|(column, vector)| {
                if space.is_open(column) { change(column, vector) } else { zeros::<V, N>() }
            }))
        })
    }

    /// `N` scalars of each open column; zeros of the others.
    fn measure<const N: usize>(
        &self,
        of: impl Fn(usize, &V) -> [ScalarOf<V>; N],
    ) -> [ScalarOf<MultiVector<V>>; N] {
        let space = &self.space;
        V::together(&space.of_column, || {
            collected(self.columns.iter().enumerate().map(|(column, vector)| {
                if space.is_open(column) { of(column, vector) } else { zeros::<V, N>() }
            }))
        })
    }
}

fn zeros<V: Vector, const N: usize>() -> [ScalarOf<V>; N] {
    [(); N].map(|()| ElemOf::<V>::zero().into())
}

/// The first scalars of all columns, the second ones, and so on.
fn collected<T, S, const N: usize>(columns: impl Iterator<Item = [S; N]>) -> [Scalars<T, S>; N] {
    let mut all = [(); N].map(|()| Scalars::new([]));
    columns.for_each(|scalars| all.iter_mut().zip(scalars).for_each(|(all, scalar)| all.extend([scalar])));
    all
}

/// The space of [`MultiVector`]s: the space of each column, the number of columns, and which of them are
/// closed.
///
/// Columns can be closed: from then on operations leave the entries of these columns unchanged, in all
/// multivectors made from this space. So the solve of a column can end while others continue.
#[derive(Clone, Debug)]
pub struct MultiSpace<S> {
    of_column: S,
    open: Arc<[AtomicBool]>,
}

impl<S: Space> MultiSpace<S> {
    /// The space of multivectors of `columns` vectors, none of them closed.
    pub fn new(of_column: &S, columns: usize) -> Self {
        let open = (0..columns).map(|_| AtomicBool::new(true)).collect();
        MultiSpace { of_column: of_column.clone(), open }
    }

    /// The number of columns.
    pub fn columns(&self) -> usize {
        self.open.len()
    }

    /// The space of each column.
    pub fn of_column(&self) -> &S {
        &self.of_column
    }

    /// The same columns in another column space. A column that is closed in one of the two spaces is closed
    /// in both.
    pub(crate) fn with_column_space(&self, of_column: &S) -> Self {
        MultiSpace { of_column: of_column.clone(), open: self.open.clone() }
    }

    /// Returns whether operations change this column.
    pub(crate) fn is_open(&self, column: usize) -> bool {
        self.open[column].load(Relaxed)
    }

    /// Opens all columns again.
    pub(crate) fn open_all(&self) {
        self.open.iter().for_each(|open| open.store(true, Relaxed));
    }

    pub(crate) fn close(&self, column: usize) {
        self.open[column].store(false, Relaxed);
    }
}

impl<S: PartialEq> PartialEq for MultiSpace<S> {
    fn eq(&self, other: &Self) -> bool {
        self.of_column == other.of_column && self.open.len() == other.open.len()
    }
}

/// The length is that of a column; `load` copies the same host data to every column.
impl<S: Space> Space for MultiSpace<S> {
    type Vector = MultiVector<S::Vector>;

    fn len(&self) -> usize {
        self.of_column.len()
    }

    fn local_len(&self) -> usize {
        self.of_column.local_len()
    }

    fn agree(&self, wish: u8) -> Result<u8> {
        self.of_column.agree(wish)
    }

    fn report_failure(&self, error: &Error) {
        self.of_column.report_failure(error);
    }

    fn is_interrupted(&self) -> bool {
        self.of_column.is_interrupted()
    }

    fn zeros(&self) -> Result<MultiVector<S::Vector>> {
        let columns = (0..self.columns()).map(|_| self.of_column.zeros()).collect::<Result<_>>()?;
        Ok(MultiVector { columns, space: self.clone() })
    }

    /// Copies the same data into every column.
    fn load(&self, host: &[ElemOf<S::Vector>], into: &mut MultiVector<S::Vector>) -> Result<()> {
        into.columns.iter_mut().try_for_each(|column| self.of_column.load(host, column))
    }

    /// Copies the first column.
    fn store(&self, from: &MultiVector<S::Vector>, host: &mut [ElemOf<S::Vector>]) -> Result<()> {
        from.columns.first().map_or(Ok(()), |column| self.of_column.store(column, host))
    }
}

/// Applies every operation column by column.
impl<V: Vector> BasicVector for MultiVector<V> {
    type Elem = V::Elem;
    type Scalar = Scalars<V::Elem, V::Scalar>;
    type Space = MultiSpace<V::Space>;
    type Basis = VectorBasis<Self>;
    type Steps = Lockstep<V>;
    type Native = Infallible;

    fn space(&self) -> &Self::Space {
        &self.space
    }

    fn copy_from(&mut self, x: &Self) {
        self.update(|j, y| y.copy_from(&x.columns[j]));
    }

    fn axpby(&mut self, a: &Self::Scalar, x: &Self, b: &Self::Scalar) {
        self.update(|j, y| y.axpby(a.column(j), &x.columns[j], b.column(j)));
    }

    fn dot(&self, y: &Self) -> Self::Scalar {
        let [dots] = self.measure(|j, x| [x.dot(&y.columns[j])]);
        dots
    }

    fn multiply(&mut self, d: &Self, x: &Self) {
        self.update(|j, y| y.multiply(&d.columns[j], &x.columns[j]));
    }

    fn basis(space: &Self::Space, count: usize) -> Result<VectorBasis<Self>> {
        VectorBasis::new(space, count)
    }
}

impl<V: Vector> Vector for MultiVector<V> {
    fn flip_signs(&mut self) -> Result<()> {
        let space = &self.space;
        let open = self.columns.iter_mut().enumerate().filter(|(column, _)| space.is_open(*column));
        open.map(|(_, vector)| vector).try_for_each(Vector::flip_signs)
    }

    fn axpy(&mut self, a: &Self::Scalar, x: &Self) {
        self.update(|j, y| y.axpy(a.column(j), &x.columns[j]));
    }

    fn xpby(&mut self, x: &Self, b: &Self::Scalar) {
        self.update(|j, y| y.xpby(&x.columns[j], b.column(j)));
    }

    fn norm_squared(&self) -> Self::Scalar {
        let [squares] = self.measure(|_, x| [x.norm_squared()]);
        squares
    }

    fn dot_2(&self, y: &Self, z: &Self) -> [Self::Scalar; 2] {
        self.measure(|j, x| x.dot_2(&y.columns[j], &z.columns[j]))
    }

    fn axpbypcz(&mut self, a: &Self::Scalar, x: &Self, b: &Self::Scalar, y: &Self, c: &Self::Scalar) {
        self.update(|j, z| {
            z.axpbypcz(a.column(j), &x.columns[j], b.column(j), &y.columns[j], c.column(j));
        });
    }

    fn axpy_dot_2(&mut self, a: &Self::Scalar, x: &Self, y: &Self) -> [Self::Scalar; 2] {
        self.reduce(|j, z| z.axpy_dot_2(a.column(j), &x.columns[j], &y.columns[j]))
    }

    fn axpy_norm(&mut self, a: &Self::Scalar, x: &Self) -> Self::Scalar {
        let [norm] = self.reduce(|j, z| [z.axpy_norm(a.column(j), &x.columns[j])]);
        norm
    }

    fn axpy_xpby(&mut self, a: &Self::Scalar, p: &mut Self, z: &Self, b: &Self::Scalar) {
        self.update(|j, x| x.axpy_xpby(a.column(j), &mut p.columns[j], &z.columns[j], b.column(j)));
    }

    fn multiply_dot(&mut self, d: &Self, x: &Self) -> Self::Scalar {
        let [sum] = self.reduce(|j, y| [y.multiply_dot(&d.columns[j], &x.columns[j])]);
        sum
    }

    fn axpy_multiply_dot(&mut self, a: &Self::Scalar, q: &Self, d: &Self, z: &mut Self) -> [Self::Scalar; 2] {
        self.reduce(|j, r| r.axpy_multiply_dot(a.column(j), &q.columns[j], &d.columns[j], &mut z.columns[j]))
    }
}
