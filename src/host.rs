//! The CPU, and vectors in host memory.

use crate::memory::{self, check_free_memory};
use crate::numbers::Real;
use crate::permutation::Permutation;
use crate::saved::saved;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::basis::{self, Columns};
use krysp_kernels::cpu::run::threads::over_rows;
use krysp_kernels::cpu::{block, vector};
use krysp_kernels::interrupt;
use krysp_solvers::{
    BasicVector, Basis, Error, Immediate, OperatorFn, Result, Space, Term, Vector, flip_signs,
};
use std::convert::Infallible;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

/// The CPU: host memory and the threads of this program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Host;

impl Host {
    /// Limits the total memory of this program, including the memory that it uses now. An array that would
    /// exceed the limit gives [`Error::Allocation`](crate::Error::Allocation), a factorization
    /// [`Error::Memory`](crate::Error::Memory), and formats that would exceed it are not chosen. Without a
    /// limit all free memory may be used.
    ///
    /// ```
    /// use krysp::Host;
    ///
    /// Host.limit_memory(8 << 30); // leave the rest to other programs
    /// # Host.limit_memory(usize::MAX);
    /// ```
    pub fn limit_memory(&self, bytes: usize) {
        memory::set_limit(bytes);
    }

    /// The bytes of memory that are free and within the limit, if the system reports them.
    pub fn free_memory(&self) -> Option<usize> {
        memory::free()
    }
}

/// The space of host vectors of one length, in the user's order or in a permuted one.
#[derive(Clone, Debug)]
pub struct HostSpace<T> {
    len: usize,
    permutation: Option<Arc<Permutation>>,
    element: PhantomData<fn() -> T>,
}

saved!(impl[T: Real] HostSpace<T> { len, permutation; element = PhantomData } where |read| {
    read.permutation.as_ref().is_none_or(|permutation| permutation.len() == read.len)
});

impl<T: Real> HostSpace<T> {
    /// The space of vectors of `len` entries in the user's order.
    pub fn new(len: usize) -> HostSpace<T> {
        HostSpace { len, permutation: None, element: PhantomData }
    }

    /// Space of vectors whose entries are in the order of a permutation.
    pub fn permuted(permutation: Arc<Permutation>) -> HostSpace<T> {
        HostSpace { len: permutation.len(), permutation: Some(permutation), element: PhantomData }
    }

    /// Space of vectors of another element type with the same length and permutation.
    pub fn cast<U: Real>(&self) -> HostSpace<U> {
        HostSpace { len: self.len, permutation: self.permutation.clone(), element: PhantomData }
    }

    /// The permutation, or `None` for the user's order.
    pub fn permutation(&self) -> Option<&Arc<Permutation>> {
        self.permutation.as_ref()
    }

    /// A vector with the given entries, which are in the user's order.
    pub fn vector(&self, entries: &[T]) -> Result<HostVector<T>> {
        let mut vector = self.zeros()?;
        self.load(entries, &mut vector)?;
        Ok(vector)
    }

    fn fits(&self, what: &'static str, len: usize) -> Result<()> {
        if len == self.len {
            return Ok(());
        }
        Err(Error::Size { what, got: len, of: "the space", expected: self.len })
    }
}

/// `to[i] = from[places[i]]`.
pub(crate) fn gather<T: Real>(from: &[T], places: &[u32], to: &mut [T]) {
    over_rows(to.len(), 3, to, &|range, to: &mut [T]| {
        for (to, &place) in to.iter_mut().zip(&places[range]) {
            *to = from[place as usize];
        }
    });
}

impl<T> PartialEq for HostSpace<T> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len
            && match (&self.permutation, &other.permutation) {
                (None, None) => true,
                (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a == b,
                _ => false,
            }
    }
}

impl<T: Real> Space for HostSpace<T> {
    type Vector = HostVector<T>;

    fn len(&self) -> usize {
        self.len
    }

    fn is_interrupted(&self) -> bool {
        interrupt::is_raised()
    }

    fn zeros(&self) -> Result<HostVector<T>> {
        check_free_memory("a vector", (self.len * size_of::<T>()) as u128)?;
        Ok(HostVector { entries: Buffer::zeros(self.len), space: self.clone() })
    }

    fn load(&self, host: &[T], into: &mut HostVector<T>) -> Result<()> {
        self.fits("the host slice", host.len())?;
        self.fits("the vector", into.entries.len())?;
        match &self.permutation {
            None => vector::copy(host, &mut into.entries),
            Some(permutation) => {
                gather(host, permutation.old_of_new(), &mut into.entries);
            }
        }
        Ok(())
    }

    fn store(&self, from: &HostVector<T>, host: &mut [T]) -> Result<()> {
        self.fits("the host slice", host.len())?;
        self.fits("the vector", from.entries.len())?;
        match &self.permutation {
            None => vector::copy(&from.entries, host),
            Some(permutation) => {
                gather(&from.entries, permutation.new_of_old(), host);
            }
        }
        Ok(())
    }
}

/// A vector in host memory, 64-byte aligned. Its operations run on Rayon's threads.
///
/// The order of additions in a reduction depends only on the length, so results are bitwise identical from run to run
/// and for any number of threads.
#[derive(Clone, Debug)]
pub struct HostVector<T: Real> {
    entries: Buffer<T>,
    space: HostSpace<T>,
}

saved!(impl[T: Real] HostVector<T> { entries, space } where |read| read.entries.len() == read.space.len);

impl<T: Real> HostVector<T> {
    /// A vector in the user's order.
    pub fn from_slice(entries: &[T]) -> HostVector<T> {
        HostVector { entries: Buffer::copy_of(entries), space: HostSpace::new(entries.len()) }
    }

    /// The entries, in the order of the space.
    pub fn as_slice(&self) -> &[T] {
        &self.entries
    }

    /// The entries, in the order of the space.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        &mut self.entries
    }
}

impl<T: Real> BasicVector for HostVector<T> {
    type Elem = T;
    type Scalar = T;
    type Space = HostSpace<T>;
    type Basis = HostBasis<T>;
    type Steps = Immediate<Self>;
    type Native = Infallible;

    fn space(&self) -> &HostSpace<T> {
        &self.space
    }

    fn copy_from(&mut self, x: &Self) {
        vector::copy(&x.entries, &mut self.entries);
    }

    fn axpby(&mut self, a: &T, x: &Self, b: &T) {
        vector::axpby(*a, &x.entries, *b, &mut self.entries);
    }

    fn dot(&self, y: &Self) -> T {
        vector::dot(&self.entries, &y.entries)
    }

    fn multiply(&mut self, d: &Self, x: &Self) {
        vector::mul(&d.entries, &x.entries, &mut self.entries);
    }

    fn basis(space: &HostSpace<T>, count: usize) -> Result<HostBasis<T>> {
        let rows = space.len();
        check_free_memory(
            "the basis of the restarts",
            count as u128 * rows as u128 * size_of::<T>() as u128,
        )?;
        Ok(HostBasis {
            entries: Buffer::zeros(count * rows),
            rows,
            coefficients: vec![T::zero(); count],
            scratch: vec![T::zero(); count],
            total: vec![T::zero(); count],
            sums: vec![T::zero(); basis::block_sums(rows, count)],
        })
    }
}

impl<T: Real> Vector for HostVector<T> {
    fn flip_signs(&mut self) -> Result<()> {
        over_rows(self.entries.len(), 2, &mut *self.entries, &|rows, entries: &mut [T]| {
            flip_signs(entries, rows.start);
        });
        Ok(())
    }

    fn dot_2(&self, y: &Self, z: &Self) -> [T; 2] {
        vector::dot_2(&self.entries, &y.entries, &z.entries)
    }

    fn axpbypcz(&mut self, a: &T, x: &Self, b: &T, y: &Self, c: &T) {
        vector::axpbypcz(*a, &x.entries, *b, &y.entries, *c, &mut self.entries);
    }

    fn axpy_dot_2(&mut self, a: &T, x: &Self, y: &Self) -> [T; 2] {
        vector::axpy_dot_2(*a, &x.entries, &y.entries, &mut self.entries)
    }

    fn axpy_norm(&mut self, a: &T, x: &Self) -> T {
        vector::axpy_norm(*a, &x.entries, &mut self.entries)
    }

    fn axpy_xpby(&mut self, a: &T, p: &mut Self, z: &Self, b: &T) {
        vector::axpy_xpby(*a, &mut p.entries, &z.entries, *b, &mut self.entries);
    }

    fn axpy_multiply_dot(&mut self, a: &T, q: &Self, d: &Self, z: &mut Self) -> [T; 2] {
        vector::axpy_mul_dots(*a, &q.entries, &mut self.entries, &d.entries, &mut z.entries)
    }

    fn gram(x: &[Self], y: &[Self], products: &mut Vec<T>) {
        block::gram(&Slices::of(x), &Slices::of(y), products);
    }

    fn dots(x: &[Self], y: &[Self], products: &mut Vec<T>) {
        block::dots(&Slices::of(x), &Slices::of(y), products);
    }

    fn combine(y: &mut [Self], mut keep: bool, terms: &[Term<'_, Self>]) {
        let columns = y.len();
        // two terms at a time, which is what block methods need; lists of them allocate nothing
        for two in terms.chunks(2) {
            let x = [0, 1].map(|k| Slices::of(two.get(k).map_or(&[], |term| term.x)));
            for (first, y) in (0..).step_by(block::MOST).zip(y.chunks_mut(block::MOST)) {
                let c = |k: usize| two.get(k).and_then(|term| term.c.get(first..)).unwrap_or_default();
                let terms = [(&*x[0], c(0)), (&*x[1], c(1))];
                let count = y.len();
                let mut entries = y.iter_mut().map(|y| &mut *y.entries);
                let y = std::array::from_fn(|_| entries.next().unwrap_or_default());
                block::combine(y, count, keep, &terms[..two.len()], columns);
            }
            keep = true;
        }
    }
}

/// The entries of several vectors. A list of up to [`block::MOST`] allocates nothing.
struct Slices<'v, T> {
    few: [&'v [T]; block::MOST],
    many: Vec<&'v [T]>,
    count: usize,
}

impl<'v, T: Real> Slices<'v, T> {
    fn of(vectors: &'v [HostVector<T>]) -> Self {
        let few = std::array::from_fn(|k| vectors.get(k).map_or(&[][..], HostVector::as_slice));
        let many = match vectors.len() > block::MOST {
            true => vectors.iter().map(HostVector::as_slice).collect(),
            false => Vec::new(),
        };
        Slices { few, many, count: vectors.len() }
    }
}

impl<'v, T> Deref for Slices<'v, T> {
    type Target = [&'v [T]];

    fn deref(&self) -> &[&'v [T]] {
        if self.many.is_empty() { &self.few[..self.count] } else { &self.many }
    }
}

/// An orthonormal basis in host memory.
#[derive(Debug)]
pub struct HostBasis<T: Real> {
    entries: Buffer<T>,
    rows: usize,
    coefficients: Vec<T>,
    scratch: Vec<T>,
    /// For each vector of the basis, the sum of its coefficients in the last `project` and in each
    /// `subtract_project` since then.
    total: Vec<T>,
    /// Workspace for the partial sums of each block of rows.
    sums: Vec<T>,
}

impl<T: Real> HostBasis<T> {
    fn columns(&self, k: usize) -> Columns<'_, T> {
        Columns { entries: &self.entries[..k * self.rows], rows: self.rows }
    }

    /// Replaces this rank's coefficients of the last projection by their sums over all ranks.
    pub(crate) fn replace_coefficients(&mut self, c: &[T]) {
        self.coefficients[..c.len()].copy_from_slice(c);
    }
}

impl<T: Real> Basis<HostVector<T>> for HostBasis<T> {
    fn push(&mut self, j: usize, w: &HostVector<T>, norm_squared: &T) -> Result<()> {
        let column = &mut self.entries[j * self.rows..][..self.rows];
        vector::axpby(norm_squared.sqrt().recip(), &w.entries, T::zero(), column);
        Ok(())
    }

    fn load(&self, j: usize, w: &mut HostVector<T>) {
        vector::copy(&self.entries[j * self.rows..][..self.rows], &mut w.entries);
    }

    fn project(&mut self, k: usize, w: &HostVector<T>) {
        let HostBasis { entries, rows, coefficients, total, sums, .. } = self;
        let columns = Columns { entries: &entries[..k * *rows], rows: *rows };
        basis::project(columns, &w.entries, &mut coefficients[..k], sums);
        total[..k].copy_from_slice(&coefficients[..k]);
    }

    fn subtract(&mut self, k: usize, w: &mut HostVector<T>) {
        self.subtract_norm(k, w);
    }

    fn subtract_project(&mut self, k: usize, w: &mut HostVector<T>) {
        std::mem::swap(&mut self.coefficients, &mut self.scratch);
        let HostBasis { entries, rows, coefficients, scratch, total, sums } = self;
        let columns = Columns { entries: &entries[..k * *rows], rows: *rows };
        basis::subtract_project(columns, &scratch[..k], &mut w.entries, &mut coefficients[..k], sums);
        for (total, &c) in total[..k].iter_mut().zip(&coefficients[..k]) {
            *total += c;
        }
    }

    fn subtract_norm(&mut self, k: usize, w: &mut HostVector<T>) -> T {
        basis::subtract_norm(self.columns(k), &self.coefficients[..k], &mut w.entries)
    }

    fn coefficients(&self, c: &mut [T]) -> Result<()> {
        c.copy_from_slice(&self.coefficients[..c.len()]);
        Ok(())
    }

    fn record(&self, k: usize, steps: &mut Immediate<HostVector<T>>) -> Result<()> {
        steps.record_known(&self.total[..k]);
        Ok(())
    }

    fn combine(&mut self, y: &[T], x: &mut HostVector<T>) -> Result<()> {
        for (minus, &y) in self.scratch.iter_mut().zip(y) {
            *minus = -y;
        }
        x.entries.fill(T::zero());
        basis::subtract_norm(self.columns(y.len()), &self.scratch[..y.len()], &mut x.entries);
        Ok(())
    }
}

/// A matrix-free operator on `n` unknowns in host memory, made from a function on slices.
///
/// ```
/// use krysp::{Cg, operator_fn};
///
/// let twice = operator_fn(3, |x: &[f64], y: &mut [f64]| y.iter_mut().zip(x).for_each(|(y, x)| *y = 2.0 * x));
/// let solution = Cg::new(twice).solve(&[2.0, 4.0, 6.0])?;
/// assert_eq!(solution.x, [1.0, 2.0, 3.0]);
/// # Ok::<(), krysp::solvers::Error>(())
/// ```
#[expect(clippy::type_complexity, reason = "a closure's type has no shorter name")]
pub fn operator_fn<T: Real>(
    n: usize,
    function: impl Fn(&[T], &mut [T]) + Send + Sync,
) -> OperatorFn<HostVector<T>, impl Fn(&HostVector<T>, &mut HostVector<T>) -> Result<()> + Send + Sync> {
    let space = HostSpace::new(n);
    OperatorFn::new(&space, &space, move |x: &HostVector<T>, y: &mut HostVector<T>| {
        function(x.as_slice(), y.as_mut_slice());
        Ok(())
    })
}
