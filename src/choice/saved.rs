//! Operators in files: the choice and the matrix in its format. For a GPU, the matrix is stored as CSR and
//! converted on loading.

use super::{Host, Machine, Operator, Stores};
use crate::error::Result;
use crate::formats::Csr;
use crate::numbers::Real;
use crate::saved::{Keys, read, write};
use krysp_solvers::Vector;
use std::path::Path;

impl<V: Vector<Elem: Real>> Operator<V> {
    /// Saves the matrix in its format, so that a later run can [`load`](Operator::load) it without choosing a
    /// format or reordering again, and in host memory without converting again.
    ///
    /// ```
    /// use krysp::{Csr, Host, LinearOperator, Operator};
    ///
    /// # let path = std::env::temp_dir().join(format!("krysp_operator_{}", std::process::id()));
    /// # let path = path.as_path();
    /// let csr = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (1, 1, 4.0)])?;
    /// Operator::auto(&csr, &Host)?.save(path)?;
    ///
    /// // in a later run
    /// let a: Operator<krysp::HostVector<f64>> = Operator::load(path, &Host)?;
    /// assert_eq!(krysp::Cg::new(a).solve(&[2.0, 4.0])?.x, [1.0, 1.0]);
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let kind = self.matrix.kind();
        let matrix = match kind == <Host as Stores<V::Elem>>::KIND {
            true => None,
            false => Some(self.origin().in_host_memory()?),
        };
        write(path.as_ref(), &keys::<V::Elem>(kind), |to| {
            self.write(to);
            if let Some(matrix) = &matrix {
                to.write(&**matrix);
            }
        })
    }

    /// Loads an operator that [`Operator::save`] wrote on the same kind of machine.
    ///
    /// Returns [`Error::Saved`](crate::Error::Saved), with the reason, for a file of another kind, version or
    /// processor, for one with formats that the machine lacks, and for a truncated or damaged file. The file must
    /// not be truncated while it is read: most operating systems kill the process in that case.
    pub fn load<M: Machine<V::Elem, Vector = V>>(path: impl AsRef<Path>, machine: &M) -> Result<Operator<V>> {
        let kind = <M as Stores<V::Elem>>::KIND;
        let found = read(path.as_ref(), &keys::<V::Elem>(kind), |from, _| {
            Ok(match machine.load(from)? {
                Ok(operator) => Ok(operator),
                Err(choice) => Err((from.read::<Csr<V::Elem>>()?, choice)),
            })
        })?;
        found.or_else(|(matrix, choice)| Operator::in_format(&matrix, machine, choice.stored().format()))
    }
}

/// The keys of the file, which must match on loading. They do not depend on the matrix.
fn keys<T: Real>(kind: &str) -> Keys {
    Keys::new(&format!("a matrix of {} for {kind}", std::any::type_name::<T>()), 0, 0)
}
