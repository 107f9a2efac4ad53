//! Matrices larger than the memory of a GPU.
//!
//! A matrix is divided into pieces of rows, each of which is converted on the GPU. As many pieces as fit stay
//! there; the large arrays of the others are moved to pinned host memory, from which kernels read them over
//! the bus as they would read device memory. So a product needs no separate copies: transfer and computation
//! overlap, and the product is recorded and replayed like any other.
//!
//! ```no_run
//! use krysp::prelude::*;
//! use krysp::{Csr, Streamed, gallery};
//!
//! let a: Csr<f64> = gallery::poisson(&[200; 3])?;
//! let gpu = Cuda::new(0)?;
//! let streamed = Streamed::on(&gpu, &a, 200 << 20)?; // limit: 200 MiB of the GPU's memory
//! println!("{}", streamed.traffic()); // time of a product, and how to reduce it
//! let mut solver = Cg::new(streamed).preconditioner(Jacobi::new(&a)?.to(&gpu)?);
//! assert!(solver.solve(&vec![1.0; a.rows()])?.report.converged());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The bus determines the time of a product, so each piece is stored in the format with the fewest bytes
//! among those that can be read over the bus: DIA, BSR, SELL-P and COO.

use crate::choice::{Candidate, Choice, Estimate, Model};
use crate::device::{Cuda, CudaSpace, CudaVector, Error, failed};
use crate::error::Result;
use crate::formats::{Bsr, Coo, CooOptions, Crossing, Csr, Dia, Format, OnDevice, Sell, Source};
use crate::numbers::Real;
use krysp_kernels::cuda::Product;
use krysp_kernels::ranges::{even_parts, ranges};
use krysp_solvers::{LinearOperator, check_spaces};
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// The size of a piece is the memory limit divided by this number. Building a piece temporarily takes the
/// memory of two more pieces, which favours small pieces; each piece costs a kernel launch, which favours
/// large ones. A guess.
const PIECES: usize = 24;

/// Maximum number of entries of a piece. Positions in its arrays, including padding, have 32 bits; a
/// sixteenth of their range leaves a margin for padding and for uneven pieces. Guess.
const LARGEST: usize = 1 << 28;

/// Boundaries of pieces are multiples of this number of rows, a multiple of all block sizes and of cache
/// lines.
const GRAIN: usize = 768;

/// A matrix partly in the memory of a GPU, and partly in host memory.
#[derive(Debug)]
pub struct Streamed<T: Real> {
    source: Source<T>,
    domain: CudaSpace<T>,
    range: CudaSpace<T>,
    pieces: Vec<Piece<T>>,
    traffic: StreamingTraffic,
}

/// Some rows of a matrix.
#[derive(Debug)]
struct Piece<T: Real> {
    rows: Range<usize>,
    source: Source<T>,
    matrix: Box<dyn Product<T>>,
    /// Bytes in the memory of the GPU.
    bytes: usize,
    /// Bytes in host memory.
    streamed: usize,
}

/// Bytes that a product with a [`Streamed`] matrix reads, and from where.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreamingTraffic {
    /// Bytes of the matrix in the memory of the GPU.
    pub resident_bytes: usize,
    /// Bytes read over the bus in a product.
    pub streamed_bytes: usize,
    /// Bandwidth of the bus in bytes per second, measured when the matrix was made.
    pub bandwidth: f64,
}

impl StreamingTraffic {
    /// Lower bound of the time of a product in seconds.
    pub fn seconds(&self) -> f64 {
        self.streamed_bytes as f64 / self.bandwidth
    }
}

impl fmt::Display for StreamingTraffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &StreamingTraffic { resident_bytes: kept, streamed_bytes: streamed, bandwidth: bus } = self;
        let mb = |bytes: usize| bytes as f64 / 1e6;
        write!(f, "{:.1} of {:.1} MB are kept on the GPU", mb(kept), mb(kept + streamed))?;
        if streamed == 0 {
            return write!(f, "; a product reads nothing over the bus");
        }
        let (gbs, ms) = (bus / 1e9, 1e3 * self.seconds());
        write!(f, "; a product reads {:.1} MB over the bus, at {gbs:.1} GB/s: {ms:.3} ms", mb(streamed))?;
        write!(f, ". To reduce this: {:.1} MB more of the GPU's memory", mb(streamed))?;
        if kept > 0 {
            let gpus = (kept + streamed).div_ceil(kept);
            write!(f, "; {gpus} GPUs with as much memory each (`MultiGpu`)")?;
        }
        write!(f, "; 32-bit values instead of 64-bit ones")
    }
}

impl<T: Real> Piece<T> {
    /// Moves the large arrays of the piece to host memory, unless they are already there.
    fn spill(&mut self, traffic: &mut StreamingTraffic) -> Result<()> {
        if self.streamed == 0 {
            let whole = self.matrix.bytes();
            self.streamed = self.matrix.spill()?;
            let stays = if self.streamed == 0 { self.bytes } else { whole - self.streamed };
            traffic.resident_bytes -= self.bytes - stays;
            traffic.streamed_bytes += self.streamed;
            self.bytes = stays;
        }
        Ok(())
    }
}

impl<T: Real> Streamed<T> {
    /// Stores a matrix with at most `limit` bytes in the memory of a GPU at any time, also while it is built.
    /// Vectors are not counted.
    pub fn on(gpu: &Cuda, csr: &Csr<T>, limit: usize) -> Result<Streamed<T>> {
        let entry = size_of::<T>() + size_of::<u32>();
        let bytes = csr.nnz() * entry + csr.rows() * size_of::<u64>();
        let of_piece = (limit / PIECES).clamp(1, LARGEST * entry);
        let bounds = even_parts(&*csr.pattern().offsets, bytes.div_ceil(of_piece), GRAIN);
        let bus = gpu.device().bus()?;
        let mut traffic = StreamingTraffic { resident_bytes: 0, streamed_bytes: 0, bandwidth: bus };
        let mut pieces: Vec<Piece<T>> = vec![];
        for rows in ranges(&bounds) {
            let piece = rows_of(csr, rows.clone())?;
            let matrix = lay_out(gpu, &piece)?;
            // memory needed to build the next piece: its entries in CSR order, and its slots
            let workspace = 2 * (piece.nnz() * entry + piece.rows() * size_of::<u64>());
            // the row offsets stay on the GPU, because new values need them
            let starts = (piece.rows() + 1) * size_of::<u32>();
            let bytes = matrix.bytes() + starts;
            let mut piece = Piece { rows, source: piece.source().clone(), matrix, bytes, streamed: 0 };
            traffic.resident_bytes += bytes;
            // a piece in host memory still has small arrays on the GPU, for which other pieces may have to be
            // moved
            for piece in std::iter::once(&mut piece).chain(pieces.iter_mut().rev()) {
                if traffic.resident_bytes + workspace > limit {
                    piece.spill(&mut traffic)?;
                }
            }
            if traffic.resident_bytes > limit {
                let free = limit.saturating_sub(traffic.resident_bytes - piece.bytes);
                return Err(Error::OutOfMemory { requested: piece.bytes, free, total: limit }.into());
            }
            pieces.push(piece);
        }
        let source = csr.source().clone();
        let (domain, range) = (CudaSpace::like(gpu, source.domain()), CudaSpace::like(gpu, source.range()));
        Ok(Streamed { source, domain, range, pieces, traffic })
    }

    /// Bytes that a product reads over the bus; `Display` prints its time and how to reduce it.
    pub fn traffic(&self) -> &StreamingTraffic {
        &self.traffic
    }

    /// Replaces the values, as [`Format::refresh`] does. The pattern stays the same, and `values` are in the
    /// order of [`Csr::entries`] of the matrix that was converted. Each piece stays where it is stored.
    pub fn refresh(&mut self, values: &[T]) -> Result<()> {
        self.source.check_entries(values)?;
        let mut first = 0;
        for Piece { source, matrix, .. } in &mut self.pieces {
            let end = first + source.nnz();
            matrix.fill(source.on_device(), &values[first..end])?;
            first = end;
        }
        Ok(())
    }

    /// Converts assembled values to entries, as [`Csr::assemble`] of the converted matrix does.
    pub fn assemble<'v>(&self, values: &'v [T]) -> Result<Cow<'v, [T]>> {
        self.source.assemble(values)
    }
}

/// Some rows, with all columns.
fn rows_of<T: Real>(csr: &Csr<T>, rows: Range<usize>) -> Result<Csr<T>> {
    let at = &csr.pattern().offsets;
    let entries = at.at(rows.start)..at.at(rows.end);
    let offsets: Vec<usize> = (rows.start..=rows.end).map(|row| at.at(row) - entries.start).collect();
    let (columns, values) = (&csr.columns()[entries.clone()], &csr.entries()[entries]);
    Csr::from_csr(rows.len(), csr.cols(), &offsets, columns, values)
}

/// Converts a piece on the GPU to the format with the fewest bytes among those that can be moved to host
/// memory.
fn lay_out<T: Real>(gpu: &Cuda, piece: &Csr<T>) -> Result<Box<dyn Product<T>>> {
    let device = gpu.device();
    let choice = Choice::of(piece, Model::Gpu { multiprocessors: device.multiprocessors() });
    let costlier = choice.rejected().iter().filter_map(|candidate| match candidate {
        Candidate::HigherCost(estimate) => Some(estimate),
        Candidate::Unsuitable { .. } => None,
    });
    let bytes_as = |name: &str| {
        let mut estimates = costlier.clone().chain([choice.chosen()]);
        estimates.find(|estimate| estimate.stored.format() == name).map_or(usize::MAX, |e: &Estimate| e.bytes)
    };
    let names = [Dia::<T>::NAME, Bsr::<T>::NAME, Sell::<T>::NAME, Coo::<T>::NAME];
    let least = names.into_iter().min_by_key(|name| bytes_as(name));
    Ok(match least {
        Some(name) if name == Dia::<T>::NAME => Box::new(Dia::lay_out::<T>(piece, (), device)?),
        Some(name) if name == Bsr::<T>::NAME => {
            Box::new(Bsr::lay_out::<T>(piece, Default::default(), device)?)
        }
        Some(name) if name == Sell::<T>::NAME => {
            Box::new(Sell::lay_out::<T>(piece, Default::default(), device)?)
        }
        _ => {
            let options = CooOptions { crossing: Crossing::CarriedOut };
            Box::new(Coo::lay_out::<T>(piece, options, device)?)
        }
    })
}

impl<T: Real> LinearOperator for Streamed<T> {
    type Vector = CudaVector<T>;

    fn domain(&self) -> &CudaSpace<T> {
        &self.domain
    }

    fn range(&self) -> &CudaSpace<T> {
        &self.range
    }

    fn apply(&self, x: &CudaVector<T>, y: &mut CudaVector<T>) -> krysp_solvers::Result<()> {
        check_spaces(self, x, y)?;
        for Piece { rows, matrix, .. } in &self.pieces {
            let product = |part: &mut _| matrix.product(&x.entries, part);
            y.entries.with_part(rows.clone(), product).map_err(failed)?;
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.traffic.resident_bytes + self.traffic.streamed_bytes
    }

    fn replays(&self) -> bool {
        true
    }
}
