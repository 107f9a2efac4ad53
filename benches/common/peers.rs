//! SpMV of other crates ("peers"), each on separate arrays in the layout that the crate prefers, and a plain
//! loop.

use super::Result;
use super::contestant::{Contestant, Element, Product, Whose};
use faer::dyn_stack::MemStack;
use faer::matrix_free::LinOp;
use faer::sparse::SparseRowMat;
use faer::{MatMut, MatRef, Par};
use krysp::Csr;
use nalgebra_sparse::na::DMatrix;
use nalgebra_sparse::ops::{Op, serial};
use rayon::prelude::*;
use sprs::CsMatI;

/// SpMV with this matrix and `x` by all peers.
pub fn peers<T: Element>(csr: &Csr<T>, x: &[T]) -> Result<Vec<Contestant<T>>> {
    let y = vec![T::narrow(0.0); csr.rows()];
    let contestant = |name, whose, product| Contestant { name, whose, setup_ms: 0.0, bytes: 0, product };
    let peer = |name, product: Box<dyn Product<T>>| contestant(name, Whose::Crate, product);
    let column = DMatrix::from_column_slice(x.len(), 1, x);
    let sums = DMatrix::from_column_slice(y.len(), 1, &y);
    let offsets = csr.offsets().into_iter().map(u32::try_from).collect::<std::result::Result<_, _>>()?;
    let rows = Rows {
        offsets,
        columns: csr.columns().to_vec(),
        values: csr.entries().to_vec(),
        x: x.to_vec(),
        y: y.clone(),
    };
    Ok(vec![
        peer("faer", Box::new(Faer { par: Par::rayon(0), a: csr.try_into()?, x: x.to_vec(), y: y.clone() })),
        // threads do not always make faer faster
        peer(
            "faer on one thread",
            Box::new(Faer { par: Par::Seq, a: csr.try_into()?, x: x.to_vec(), y: y.clone() }),
        ),
        peer("sprs", Box::new(Sprs { a: csr.try_into()?, x: x.to_vec(), y })),
        peer("nalgebra-sparse", Box::new(Nalgebra { a: csr.try_into()?, x: column, y: sums })),
        contestant("our own rayon CSR", Whose::Loop, Box::new(rows)),
    ])
}

struct Faer<T> {
    par: Par,
    a: SparseRowMat<u32, T>,
    x: Vec<T>,
    y: Vec<T>,
}

impl<T: Element> Product<T> for Faer<T> {
    fn multiply(&mut self) {
        let (rows, cols) = (self.y.len(), self.x.len());
        let y = MatMut::from_column_major_slice_mut(&mut self.y, rows, 1);
        let x = MatRef::from_column_major_slice(&self.x, cols, 1);
        self.a.as_ref().apply(y, x, self.par, MemStack::new(&mut []));
    }

    fn y(&self) -> &[T] {
        &self.y
    }
}

struct Sprs<T> {
    a: CsMatI<T, u32>,
    x: Vec<T>,
    y: Vec<T>,
}

impl<T: Element> Product<T> for Sprs<T> {
    fn multiply(&mut self) {
        self.y.fill(T::narrow(0.0));
        sprs::prod::mul_acc_mat_vec_csr(self.a.view(), self.x.as_slice(), self.y.as_mut_slice());
    }

    fn y(&self) -> &[T] {
        &self.y
    }
}

struct Nalgebra<T> {
    a: nalgebra_sparse::CsrMatrix<T>,
    x: DMatrix<T>,
    y: DMatrix<T>,
}

impl<T: Element> Product<T> for Nalgebra<T> {
    fn multiply(&mut self) {
        serial::spmm_csr_dense(
            T::narrow(0.0),
            &mut self.y,
            T::narrow(1.0),
            Op::NoOp(&self.a),
            Op::NoOp(&self.x),
        );
    }

    fn y(&self) -> &[T] {
        self.y.as_slice()
    }
}

/// A plain loop over rows, on rayon's threads.
struct Rows<T> {
    offsets: Vec<u32>,
    columns: Vec<u32>,
    values: Vec<T>,
    x: Vec<T>,
    y: Vec<T>,
}

impl<T: Element> Product<T> for Rows<T> {
    fn multiply(&mut self) {
        const CHUNK: usize = 4096;
        let Rows { offsets, columns, values, x, y } = self;
        y.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, y)| {
            for (y, range) in y.iter_mut().zip(offsets[chunk * CHUNK..].windows(2)) {
                let range = range[0] as usize..range[1] as usize;
                let entries = columns[range.clone()].iter().zip(&values[range]);
                *y = entries.fold(T::narrow(0.0), |sum, (&column, &value)| sum + value * x[column as usize]);
            }
        });
    }

    fn y(&self) -> &[T] {
        &self.y
    }
}
