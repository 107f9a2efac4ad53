//! Rows of a matrix distributed over processors, in a form that can be saved.

use super::{by_least_padding, by_length_classes, by_nonzeros, by_rows};
use crate::error::{Error, ReadError, Result, WriteError};
use crate::formats::{Csr, row_blocks};
use crate::numbers::Real;
use crate::permutation::Permutation;
use krysp_kernels::ranges::ranges;
use krysp_solvers::LinearOperator;
use std::fmt::Write;
use std::ops::Range;
use std::path::Path;

/// First line of a saved file.
const HEAD: &str = "krysp row shares, version 1";

/// The rows of each of several processors: contiguous ranges, in the order of the matrix or in a permuted
/// one. A processor of power zero gets no rows.
///
/// Products with a matrix distributed in this way are bitwise repeatable, so a cut that was measured once can
/// be saved and used again.
///
/// ```
/// use krysp::gallery;
/// use krysp::partition::RowShares;
///
/// let a = gallery::poisson::<f64>(&[20; 3])?;
/// let shares = RowShares::by_nonzeros(&a, &[1.0, 20.0])?; // the host, and a GPU
/// assert_eq!(shares.bounds(), [0, 436, 8000]);
/// let file = std::env::temp_dir().join("krysp_row_shares_example.txt");
/// shares.save(&file)?;
/// assert_eq!(RowShares::load(&file)?, shares);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct RowShares {
    powers: Vec<f64>,
    bounds: Vec<usize>,
    order: Option<Permutation>,
}

impl RowShares {
    /// Contiguous rows whose numbers are in proportion to the powers (algorithm 1). Nodes of several unknowns
    /// are kept whole.
    pub fn by_rows<T: Real>(csr: &Csr<T>, powers: &[f64]) -> Result<RowShares> {
        RowShares::contiguous(csr, powers, |lengths, powers| by_rows(lengths.len(), powers))
    }

    /// Contiguous rows whose nonzeros are in proportion to the powers (algorithm 2). Nodes of several unknowns
    /// are kept whole. Reorder an unstructured matrix first, with a clustered ordering, so that few rows need
    /// entries of `x` of other processors.
    pub fn by_nonzeros<T: Real>(csr: &Csr<T>, powers: &[f64]) -> Result<RowShares> {
        RowShares::contiguous(csr, powers, by_nonzeros)
    }

    /// Rows of similar length together, with nonzeros in proportion to the powers (algorithm 3).
    pub fn by_length_classes<T: Real>(csr: &Csr<T>, powers: &[f64]) -> Result<RowShares> {
        let lengths: Vec<usize> = csr.row_lengths().collect();
        RowShares::permuted(csr, powers, by_length_classes(&lengths, &used(powers)?)?)
    }

    /// Like [`RowShares::by_length_classes`], in the order of processors that pads least.
    pub fn by_least_padding<T: Real>(csr: &Csr<T>, powers: &[f64]) -> Result<RowShares> {
        let lengths: Vec<usize> = csr.row_lengths().collect();
        RowShares::permuted(csr, powers, by_least_padding(&lengths, &used(powers)?)?)
    }

    fn contiguous<T: Real>(
        csr: &Csr<T>,
        powers: &[f64],
        cut: fn(&[usize], &[f64]) -> Result<Vec<usize>>,
    ) -> Result<RowShares> {
        let (at, rows, node) = (&csr.pattern().offsets, csr.rows(), row_blocks(csr));
        let entries = |first: usize| at.at((first + node).min(rows)) - at.at(first);
        let lengths: Vec<usize> = (0..rows).step_by(node).map(entries).collect();
        let bounds = cut(&lengths, &used(powers)?)?;
        let bounds = bounds.iter().map(|bound| (bound * node).min(rows)).collect();
        Ok(RowShares::of_bounds(powers, bounds, None))
    }

    fn permuted<T: Real>(csr: &Csr<T>, powers: &[f64], mut parts: Vec<Vec<usize>>) -> Result<RowShares> {
        let mut bounds = vec![0];
        for part in &mut parts {
            // within a part, neighbours in the matrix stay neighbours
            part.sort_unstable();
            bounds.push(bounds[bounds.len() - 1] + part.len());
        }
        let known = csr.domain().permutation();
        let user = |row: usize| known.map_or(row as u32, |known| known.old_of_new()[row]);
        let order = Permutation::from_old_of_new(parts.into_iter().flatten().map(user).collect())?;
        Ok(RowShares::of_bounds(powers, bounds, Some(order)))
    }

    /// `used` are the boundaries between processors of a power above zero.
    fn of_bounds(powers: &[f64], used: Vec<usize>, order: Option<Permutation>) -> RowShares {
        let (mut bounds, mut at) = (vec![0], 0);
        bounds.extend(powers.iter().map(|&power| {
            at += usize::from(power != 0.0);
            used[at]
        }));
        RowShares { powers: powers.to_vec(), bounds, order }
    }

    /// The computing powers by which the rows were distributed.
    pub fn powers(&self) -> &[f64] {
        &self.powers
    }

    /// Boundaries between the processors' rows, one more than there are processors.
    pub fn bounds(&self) -> &[usize] {
        &self.bounds
    }

    /// The ranges of rows of the processors.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        ranges(&self.bounds)
    }

    /// The order of the rows, if it is not that of the matrix: a permutation of the user's order, to which the
    /// boundaries refer.
    pub fn permutation(&self) -> Option<&Permutation> {
        self.order.as_ref()
    }

    /// Writes the shares to a text file.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let mut text = format!("{HEAD}\n");
        let mut line = |name: &str, numbers: &mut dyn Iterator<Item = String>| {
            text.push_str(name);
            // writing to a string cannot fail
            numbers.for_each(|number| write!(text, " {number}").unwrap_or_default());
            text.push('\n');
        };
        line("powers", &mut self.powers.iter().map(f64::to_string));
        line("bounds", &mut self.bounds.iter().map(usize::to_string));
        if let Some(order) = &self.order {
            line("order", &mut order.old_of_new().iter().map(u32::to_string));
        }
        let path = path.as_ref();
        std::fs::write(path, text).map_err(|source| {
            let path = Some(path.to_owned());
            Error::Write(WriteError::Io { path, source })
        })
    }

    /// Reads shares that [`RowShares::save`] wrote.
    pub fn load(path: impl AsRef<Path>) -> Result<RowShares> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|source| {
            let path = path.to_owned();
            Error::Read(ReadError::Io { path, source })
        })?;
        let wrong = |why: &str| Error::File { path: path.to_owned(), why: why.into() };
        let mut lines = text.lines();
        if lines.next() != Some(HEAD) {
            return Err(wrong("line 1: expected \"krysp row shares, version 1\""));
        }
        let powers: Vec<f64> = numbers(lines.next(), "powers")
            .ok_or_else(|| wrong("line 2: expected \"powers\", and a number for each processor"))?;
        used(&powers).map_err(|error| wrong(&format!("line 2: {error}")))?;
        let bounds: Vec<usize> = numbers(lines.next(), "bounds")
            .filter(|b: &Vec<usize>| b.len() == powers.len() + 1 && b[0] == 0 && b.is_sorted())
            .ok_or_else(|| {
                wrong("line 3: expected \"bounds\", from 0 and ascending, one more than powers")
            })?;
        let order = match lines.next() {
            None => None,
            line => {
                let rows: Vec<u32> = numbers(line, "order")
                    .filter(|rows: &Vec<u32>| bounds.last() == Some(&rows.len()))
                    .ok_or_else(|| {
                        wrong("line 4: expected \"order\", and a row for each row of the bounds")
                    })?;
                Some(Permutation::from_old_of_new(rows).map_err(|error| wrong(&format!("line 4: {error}")))?)
            }
        };
        if lines.next().is_some() {
            return Err(wrong("line 5: expected the end of the file"));
        }
        Ok(RowShares { powers, bounds, order })
    }
}

/// The powers of the processors that get rows. Checks all powers.
fn used(powers: &[f64]) -> Result<Vec<f64>> {
    let used: Vec<f64> = powers.iter().copied().filter(|&power| power != 0.0).collect();
    if !used.is_empty() && used.iter().all(|&power| power > 0.0) && used.iter().sum::<f64>().is_finite() {
        return Ok(used);
    }
    Err(Error::Option {
        what: "the list of computing powers",
        got: format!("{powers:?}"),
        expected: "a finite number above zero for each processor, or zero for one without rows; not all zero",
    })
}

/// The numbers of a line that begins with a name.
fn numbers<N: std::str::FromStr>(line: Option<&str>, name: &str) -> Option<Vec<N>> {
    let mut words = line?.split(' ');
    if words.next() != Some(name) {
        return None;
    }
    words.map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::matrices;

    #[test]
    fn every_kind_is_read_as_it_was_saved() {
        let a = matrices::named("rmat_2M").unwrap().csr::<f64>().unwrap();
        let powers = [1.0, 1e9 / 3.0, 0.1];
        let file = std::env::temp_dir().join(format!("krysp_shares_{}", std::process::id()));
        let of = [
            RowShares::by_rows(&a, &powers).unwrap(),
            RowShares::by_nonzeros(&a, &[0.0, 1.0, 0.0, 2.0]).unwrap(),
            RowShares::by_length_classes(&a, &powers).unwrap(),
            RowShares::by_least_padding(&a, &powers).unwrap(),
        ];
        assert_eq!(of[1].bounds()[..2], [0, 0]);
        assert_eq!(of[1].ranges().filter(|rows| rows.is_empty()).count(), 2);
        for (wrong, printed) in [
            ([0.0, 0.0], "[0.0, 0.0]"),
            ([0.0, -1.0], "[0.0, -1.0]"),
            ([f64::NAN, 0.0], "[NaN, 0.0]"),
            ([0.0, f64::INFINITY], "[0.0, inf]"),
        ] {
            for cut in [RowShares::by_rows, RowShares::by_nonzeros, RowShares::by_length_classes] {
                let error = cut(&a, &wrong).unwrap_err().to_string();
                assert!(error.contains(printed) && error.contains("zero for one without rows"), "{error}");
            }
        }
        for shares in of {
            assert_eq!(shares.bounds().last(), Some(&a.rows()));
            shares.save(&file).unwrap();
            assert_eq!(RowShares::load(&file).unwrap(), shares);
        }
        let text = std::fs::read_to_string(&file).unwrap();
        for (from, to, line) in [
            ("version 1", "version 2", "line 1"),
            ("powers 1 ", "powers -1 ", "line 2"),
            (
                text.split_inclusive('\n').nth(1).unwrap(),
                "powers 0 0 0\n",
                "line 2: the list of computing powers is [0.0, 0.0, 0.0]",
            ),
            ("bounds 0 ", "bounds 1 ", "line 3"),
            ("order ", "order 7 ", "line 4"),
        ] {
            std::fs::write(&file, text.replace(from, to)).unwrap();
            let error = RowShares::load(&file).unwrap_err().to_string();
            assert!(error.contains(line), "{from}: {error}");
        }
        std::fs::write(&file, format!("{text}\n")).unwrap();
        assert!(RowShares::load(&file).unwrap_err().to_string().contains("line 5"));
        std::fs::write(&file, text.replacen("order 0 ", "order 1 ", 1)).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert!(RowShares::load(&file).is_err());
    }

    #[test]
    fn an_order_is_one_of_the_users_order() {
        let a = matrices::named("rmat_2M").unwrap().csr::<f64>().unwrap();
        let shares = RowShares::by_length_classes(&a, &[1.0, 2.0]).unwrap();
        let reordered = a.reordered(&Permutation::rcm(&a).unwrap()).unwrap();
        let of_reordered = RowShares::by_length_classes(&reordered, &[1.0, 2.0]).unwrap();
        assert_eq!(shares.bounds(), of_reordered.bounds());
        let lengths: Vec<usize> = a.row_lengths().collect();
        let sum = |shares: &RowShares| {
            let order = shares.permutation().unwrap().old_of_new();
            order[..shares.bounds()[1]].iter().map(|&row| lengths[row as usize]).sum::<usize>()
        };
        assert_eq!(sum(&shares), sum(&of_reordered));
    }
}
