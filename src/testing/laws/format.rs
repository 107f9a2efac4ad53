//! Laws of formats: conversions lose nothing, and all laws of operators hold.

use super::{
    Agreement, Case, Law, Violation, operator_fusions, precise_residual, product, same_on_all_threads,
    second_product, several_products, sizes_refused, stale_values, unexpected,
};
use crate::error::Error;
use crate::formats::{Csr, Format};
use crate::host::HostVector;
use crate::numbers::Real;
use crate::permutation::Permutation;
use crate::testing::matrices::{Triplets, mix};
use krysp_kernels::cpu::run::threads;
use krysp_kernels::cpu::simd::storage::widen;
use krysp_solvers::LinearOperator;

/// Numbers of matrices that a format was tested on and that it refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Matrices that the laws were checked on.
    pub tested: usize,
    /// Matrices that the format refused.
    pub refused: usize,
}

/// Conversion of a matrix to a format, and the matrices that the format may refuse.
pub struct Conversion<'c, T: Real, F> {
    /// Builds the format.
    pub build: &'c (dyn Fn(&Csr<T>) -> crate::error::Result<F> + Sync),
    /// Returns whether the format may refuse this matrix as unsuitable, unsymmetric or not square.
    pub may_refuse: &'c (dyn Fn(&Csr<T>) -> bool + Sync),
}

/// The methods of a format that laws need. Used as a trait object, so that laws are compiled once for each
/// element type.
trait Stored<T: Real>: LinearOperator<Vector = HostVector<T>> {
    fn to_csr(&self) -> Csr<T>;
    fn refresh(&mut self, values: &[T]) -> crate::error::Result<()>;
    fn refresh_from(&mut self, a: &Csr<T>) -> crate::error::Result<()>;
    /// The stored values of all slots (entries and padding), converted to the element type.
    fn wide(&self) -> Vec<T>;
    /// The bytes of a stored value.
    fn width(&self) -> usize;
    fn first_slot(&self, row: usize) -> usize;
    fn slots(&self, row: usize, visit: &mut dyn FnMut(usize, usize));
    fn padding(&self) -> f64;
}

impl<T: Real, F: Format<T>> Stored<T> for F {
    fn to_csr(&self) -> Csr<T> {
        Format::to_csr(self)
    }

    fn refresh(&mut self, values: &[T]) -> crate::error::Result<()> {
        Format::refresh(self, values)
    }

    fn refresh_from(&mut self, a: &Csr<T>) -> crate::error::Result<()> {
        Format::refresh_from(self, a)
    }

    fn wide(&self) -> Vec<T> {
        self.values().iter().map(|&value| widen(value)).collect()
    }

    fn width(&self) -> usize {
        size_of::<F::Value>()
    }

    fn first_slot(&self, row: usize) -> usize {
        Format::first_slot(self, row)
    }

    fn slots(&self, row: usize, visit: &mut dyn FnMut(usize, usize)) {
        Format::slots(self, row, visit);
    }

    fn padding(&self) -> f64 {
        Format::padding(self)
    }
}

type Boxed<'c, T> = Box<dyn Stored<T> + 'c>;

/// A [`Conversion`] whose format is behind a trait object.
struct Conversions<'c, T: Real> {
    build: &'c (dyn Fn(&Csr<T>) -> crate::error::Result<Boxed<'c, T>> + Sync),
    may_refuse: &'c (dyn Fn(&Csr<T>) -> bool + Sync),
}

impl<'c, T: Real> Conversions<'c, T> {
    /// Builds the format. Returns `None` if the format refuses a matrix that it may refuse.
    fn of(&self, csr: &Csr<T>) -> Law<Option<Boxed<'c, T>>> {
        const LAW: &str = "a format takes every matrix that suits it";
        match (self.build)(csr) {
            Ok(format) => Ok(Some(format)),
            Err(Error::Unsuitable { .. } | Error::NotSymmetric { .. } | Error::NotSquare { .. })
                if (self.may_refuse)(csr) =>
            {
                Ok(None)
            }
            Err(error) => Err(Violation::new(LAW, format!("refused: {error}"))),
        }
    }
}

impl<T: Real, F: Format<T>> Conversion<'_, T, F> {
    /// Calls a law with this conversion as a trait object.
    fn erased<R>(&self, law: impl FnOnce(&Conversions<'_, T>) -> R) -> R {
        let build = |csr: &Csr<T>| -> crate::error::Result<Boxed<'_, T>> { Ok(Box::new((self.build)(csr)?)) };
        law(&Conversions { build: &build, may_refuse: self.may_refuse })
    }
}

/// Checks every law on every case. A format may refuse matrices only where the conversion says so, and must take at
/// least one.
pub fn format<T: Real, F: Format<T>>(cases: &[Case], conversion: &Conversion<'_, T, F>) -> Law<Tally> {
    conversion.erased(|conversions| on_cases(F::NAME, cases, conversions, one_case))
}

/// Checks only the laws of operators on every case. Conversions and refreshes do not depend on the SIMD level, so these
/// are the laws to check at further levels.
pub fn format_products<T: Real, F: Format<T>>(
    cases: &[Case],
    conversion: &Conversion<'_, T, F>,
) -> Law<Tally> {
    let tested = |triplets: &Triplets, conversions: &Conversions<'_, T>| {
        Ok(products(triplets, conversions)?.is_some())
    };
    conversion.erased(|conversions| on_cases(F::NAME, cases, conversions, tested))
}

/// Checks laws on every case; `laws` returns whether the format took the matrix.
fn on_cases<T: Real>(
    name: &str,
    cases: &[Case],
    conversions: &Conversions<'_, T>,
    laws: fn(&Triplets, &Conversions<'_, T>) -> Law<bool>,
) -> Law<Tally> {
    const LAW: &str = "a format takes matrices";
    // run on a thread of a pool, because a parallel operation that starts outside of a pool has to wake a thread
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().map_err(unexpected(LAW))?;
    let tally = pool.install(|| all_cases(name, cases, conversions, laws))?;
    if tally.tested == 0 {
        let how = format!("{name} refused all {} matrices", cases.len());
        return Err(Violation::new(LAW, how));
    }
    Ok(tally)
}

fn all_cases<T: Real>(
    name: &str,
    cases: &[Case],
    conversions: &Conversions<'_, T>,
    laws: fn(&Triplets, &Conversions<'_, T>) -> Law<bool>,
) -> Law<Tally> {
    let mut tally = Tally::default();
    for case in cases {
        let tested = laws(&case.triplets, conversions).map_err(|broken| broken.on(&case.name).on(name))?;
        *(if tested { &mut tally.tested } else { &mut tally.refused }) += 1;
    }
    Ok(tally)
}

fn one_case<T: Real>(triplets: &Triplets, conversions: &Conversions<'_, T>) -> Law<bool> {
    let Some((csr, format)) = products(triplets, conversions)? else { return Ok(false) };
    same_matrix(ROUND_TRIP, &format.to_csr(), &csr)?;
    adds_up(&*format)?;
    refreshes(triplets, conversions)?;
    Ok(true)
}

/// Checks the laws of operators. Returns the matrix and its format, or `None` if the format refuses it.
fn products<'c, T: Real>(
    triplets: &Triplets,
    conversions: &Conversions<'c, T>,
) -> Law<Option<(Csr<T>, Boxed<'c, T>)>> {
    let csr = triplets.csr::<T>().map_err(unexpected("triplets make a matrix"))?;
    let Some(format) = conversions.of(&csr)? else { return Ok(None) };
    let operator: &dyn LinearOperator<Vector = HostVector<T>> = &*format;
    product(operator, triplets)?;
    precise_residual(operator, &csr)?;
    stale_values(operator)?;
    second_product(operator)?;
    operator_fusions(operator, Agreement::Bitwise)?;
    // no vectors, one, parts of a tile of vectors, and more than a tile; large matrices test how threads share rows, for which
    // vectors without a tile and more than a tile are enough
    let counts: &[usize] = if is_large(triplets.rows) { &[3, 9] } else { &[0, 1, 2, 3, 8, 17] };
    several_products(operator, counts, Agreement::Bitwise)?;
    sizes_refused(operator)?;
    let build = || (conversions.build)(&csr).map_err(unexpected("a format takes a matrix again"));
    same_on_all_threads(&build)?;
    Ok(Some((csr, format)))
}

/// Returns whether each block of a reduction over so many rows has several chunks.
fn is_large(rows: usize) -> bool {
    rows > threads::BLOCKS * threads::CHUNK
}

const ROUND_TRIP: &str = "conversion to the format and back to CSR changes nothing";

/// Converted back to CSR, the matrix is unchanged: pattern and values, including explicit zeros and their signs.
pub fn round_trip<T: Real, F: Format<T>>(format: &F, csr: &Csr<T>) -> Law {
    same_matrix(ROUND_TRIP, &format.to_csr(), csr)
}

/// A matrix is the expected one: shape, pattern, space, and values bit by bit.
pub fn same_matrix<T: Real>(law: &'static str, got: &Csr<T>, expected: &Csr<T>) -> Law {
    let shape = |a: &Csr<T>| (a.rows(), a.cols(), a.nnz());
    if shape(got) != shape(expected) {
        return Err(Violation::new(law, format!("{:?}, not {:?}", shape(got), shape(expected))));
    }
    if got.offsets() != expected.offsets() || got.columns() != expected.columns() {
        return Err(Violation::new(law, "another pattern"));
    }
    if got.domain() != expected.domain() || got.range() != expected.range() {
        return Err(Violation::new(law, "another space"));
    }
    Agreement::Bitwise.entries(law, "the values", got.entries(), expected.entries())
}

/// The reported bytes and padding agree with the arrays. An entry has at most one slot, in range (none if the symmetric
/// entry is stored instead), and all other slots are zero.
pub fn accounting<T: Real, F: Format<T>>(format: &F) -> Law {
    adds_up(format)
}

fn adds_up<T: Real>(format: &dyn Stored<T>) -> Law {
    const LAW: &str = "bytes, slots and padding add up";
    let broken = |how: String| Err(Violation::new(LAW, how));
    let csr = format.to_csr();
    let values = format.wide();
    let (slots, entries) = (values.len(), csr.nnz());
    let mut used = vec![false; slots];
    let mut seen = vec![0u8; entries];
    let mut outside = None;
    for row in 0..csr.rows() {
        format.slots(row, &mut |entry, slot| {
            match (used.get_mut(slot), seen.get_mut(entry)) {
                (Some(used), Some(seen)) => {
                    *used = true;
                    *seen = seen.saturating_add(1);
                }
                _ => outside = Some((row, entry, slot)),
            };
        });
    }
    if let Some((row, entry, slot)) = outside {
        return broken(format!("row {row} names entry {entry} of {entries}, slot {slot} of {slots}"));
    }
    if let Some(entry) = seen.iter().position(|&count| count > 1) {
        return broken(format!("entry {entry} is visited {} times", seen[entry]));
    }
    let empty = |&(used, value): &(&bool, &T)| !used && !value.is_zero();
    if let Some((_, value)) = used.iter().zip(&values).find(empty) {
        return broken(format!("a slot of padding holds {value:e}"));
    }
    // slots after those of the last row let kernels load whole registers, and do not count as padding
    let counted = format.first_slot(csr.rows());
    let stored = used.iter().filter(|used| **used).count();
    let padding = if stored == 0 { 0.0 } else { counted as f64 / stored as f64 - 1.0 };
    if counted > slots || (format.padding() - padding).abs() > 1e-12 {
        return broken(format!(
            "padding is {}, {counted} slots of {slots} for {stored} entries make {padding}",
            format.padding()
        ));
    }
    // bytes of the values, up to two 64-bit indices for each, and offsets, permutations and row lengths
    let (bytes, least) = (format.bytes(), slots * format.width());
    let most = slots * (format.width() + 16) + 64 * (csr.rows() + csr.cols()) + 4096;
    if bytes < least || bytes > most {
        return broken(format!("{bytes} bytes, {least} to {most} are plausible for {slots} slots"));
    }
    Ok(())
}

/// Refreshing with new values gives bitwise what building from these values gives, for every order in which values can
/// be given: triplets with repeats, columns, unsorted rows, a triangle, a reordered matrix. A refresh with a wrong
/// number of values fails and changes nothing.
pub fn refresh<T: Real, F: Format<T>>(triplets: &Triplets, conversion: &Conversion<'_, T, F>) -> Law {
    conversion.erased(|conversions| refreshes(triplets, conversions))
}

fn refreshes<T: Real>(triplets: &Triplets, conversions: &Conversions<'_, T>) -> Law {
    for given in orders::<T>(triplets) {
        refresh_one(&given, conversions).map_err(|broken| broken.on(given.name))?;
    }
    Ok(())
}

type Rebuild<'o, T> = Box<dyn Fn(&[T]) -> crate::error::Result<Csr<T>> + 'o>;

/// An order in which a matrix can be given: its name, the values, other values for a refresh, and the conversion to
/// CSR.
struct Order<'o, T: Real> {
    name: &'static str,
    values: Vec<T>,
    others: Vec<T>,
    build: Rebuild<'o, T>,
}

/// A new value for an entry: an integer, so that sums of repeats are exact in any order, and the same on both sides of
/// the diagonal.
fn other<T: Real>(&(row, column, _): &(u32, u32, f64)) -> T {
    let bits = mix(u64::from(row.min(column)) << 32 | u64::from(row.max(column)));
    T::from_f64((1 + bits % 15) as f64 * if bits & 64 == 0 { 1.0 } else { -1.0 })
}

fn orders<T: Real>(triplets: &Triplets) -> Vec<Order<'static, T>> {
    let (rows, cols) = (triplets.rows, triplets.cols);
    let order = |name, entries: &[(u32, u32, f64)], build: Rebuild<'static, T>| Order {
        name,
        values: entries.iter().map(|e| T::from_f64(e.2)).collect(),
        others: entries.iter().map(other).collect(),
        build,
    };
    let places =
        |entries: &[(u32, u32, f64)]| -> (Vec<u32>, Vec<u32>) { entries.iter().map(|e| (e.0, e.1)).unzip() };
    let shuffled = triplets.clone().shuffled(17).entries;
    let (i, j) = places(&shuffled);
    let mut orders = vec![order(
        "shuffled triplets",
        &shuffled,
        Box::new(move |values| Csr::from_coordinates(rows, cols, &i, &j, values)),
    )];
    // large matrices test the distribution of slots over threads, for which one order is enough
    if is_large(rows) {
        return orders;
    }

    // a stable sort by rows or columns leaves the entries within each row or column shuffled
    let offsets = |ranges: usize, index: &[u32]| {
        let mut offsets = vec![0usize; ranges + 1];
        index.iter().for_each(|&i| offsets[i as usize + 1] += 1);
        (0..ranges).for_each(|i| offsets[i + 1] += offsets[i]);
        offsets
    };
    let mut by_rows = shuffled.clone();
    by_rows.sort_by_key(|e| e.0);
    let (i, j) = places(&by_rows);
    let starts = offsets(rows, &i);
    orders.push(order(
        "unsorted rows",
        &by_rows,
        Box::new(move |values| Csr::from_csr(rows, cols, &starts, &j, values)),
    ));
    let mut by_columns = shuffled.clone();
    by_columns.sort_by_key(|e| e.1);
    let (i, j) = places(&by_columns);
    let starts = offsets(cols, &j);
    orders.push(order(
        "columns",
        &by_columns,
        Box::new(move |values| Csr::from_csc(rows, cols, &starts, &i, values)),
    ));
    if rows != cols {
        return orders;
    }
    let triangle: Vec<_> = shuffled.iter().copied().filter(|e| e.0 >= e.1).collect();
    let (i, j) = places(&triangle);
    orders.push(order(
        "a triangle",
        &triangle,
        Box::new(move |values| Csr::from_coordinates(rows, cols, &i, &j, values)?.mirrored()),
    ));
    let (i, j) = places(&shuffled);
    let permutation = move || {
        let mut order: Vec<u32> = (0..rows as u32).collect();
        order.sort_by_key(|&i| mix(u64::from(i)));
        Permutation::from_old_of_new(order)
    };
    orders.push(order(
        "reordered",
        &shuffled,
        Box::new(move |values| Csr::from_coordinates(rows, cols, &i, &j, values)?.reordered(&permutation()?)),
    ));
    let (i, j) = places(&triangle);
    orders.push(order(
        "a triangle, reordered",
        &triangle,
        Box::new(move |values| {
            let csr = Csr::from_coordinates(rows, cols, &i, &j, values)?.mirrored()?;
            csr.reordered(&Permutation::rcm(&csr)?)
        }),
    ));
    orders
}

fn refresh_one<T: Real>(given: &Order<'_, T>, conversions: &Conversions<'_, T>) -> Law {
    const LAW: &str = "refreshing gives what building again gives";
    let before = (given.build)(&given.values).map_err(unexpected(LAW))?;
    let after = (given.build)(&given.others).map_err(unexpected(LAW))?;
    let (Some(mut refreshed), Some(rebuilt)) = (conversions.of(&before)?, conversions.of(&after)?) else {
        return Ok(());
    };
    let entries = after.entries();
    for wrong in [entries.len() + 1, entries.len().wrapping_sub(1)] {
        if wrong < usize::MAX && refreshed.refresh(&vec![T::one(); wrong]).is_ok() {
            return Err(Violation::new(
                LAW,
                format!("accepts {wrong} values, but there are {} entries", entries.len()),
            ));
        }
    }
    if let Some(last) = entries.len().checked_sub(1) {
        let mut unusable = entries.to_vec();
        unusable[last] = T::from_f64(f64::NAN);
        if !matches!(refreshed.refresh(&unusable), Err(Error::NotFinite { .. })) {
            return Err(Violation::new(LAW, "accepts NaN as the last value"));
        }
    }
    same_matrix("a refused refresh changes nothing", &refreshed.to_csr(), &before)?;
    let assembled = before.assemble(&given.others).map_err(unexpected(LAW))?;
    Agreement::Bitwise.entries(LAW, "the assembled values", &assembled, entries)?;
    refreshed.refresh(entries).map_err(unexpected(LAW))?;
    Agreement::Bitwise.entries(LAW, "the slots", &refreshed.wide(), &rebuilt.wide())?;
    same_matrix(LAW, &refreshed.to_csr(), &after)?;
    refreshed.refresh_from(&before).map_err(unexpected(LAW))?;
    same_matrix("a matrix brings its values", &refreshed.to_csr(), &before)?;
    refreshed.refresh_from(&after).map_err(unexpected(LAW))?;
    let x: Vec<T> = super::numbers(after.cols(), 9);
    let run = |format: &dyn Stored<T>| -> Law<HostVector<T>> {
        let x = format.domain().vector(&x).map_err(unexpected(LAW))?;
        let mut y = krysp_solvers::Space::zeros(format.range()).map_err(unexpected(LAW))?;
        format.apply(&x, &mut y).map_err(unexpected(LAW))?;
        Ok(y)
    };
    Agreement::Bitwise.entries(LAW, "`y`", run(&*refreshed)?.as_slice(), run(&*rebuilt)?.as_slice())
}
