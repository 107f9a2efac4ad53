//! An operator in a file: what was chosen, and the matrix in its format. On a GPU the format is made there again.

use super::{Host, Machine, Operator, Stores};
use crate::saved::{Keys, Saved, read, write};
use crate::{Csr, Real, Result};
use krysp_solvers::Vector;
use std::path::Path;

impl<V: Vector<Elem: Real>> Operator<V> {
    /// Saves the matrix in its format, so that the next run of a program can [`load`](Operator::load) it: nothing is weighed,
    /// renumbered or converted again.
    ///
    /// ```
    /// use krysp::{Csr, Host, LinearOperator, Operator};
    ///
    /// # let path = std::env::temp_dir().join(format!("krysp_operator_{}", std::process::id()));
    /// # let path = path.as_path();
    /// let csr = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (1, 1, 4.0)])?;
    /// Operator::auto(&csr, &Host)?.save(path)?;
    ///
    /// // another day
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
                Saved::save(&**matrix, to);
            }
        })
    }

    /// Reads what [`Operator::save`] wrote on the same kind of machine.
    ///
    /// Refuses a file of another kind, version or processor, one that was cut off, and one in which any bit is not what was
    /// written: [`Error::Saved`](crate::Error::Saved) says which. The file must not be truncated while it is read: most operating
    /// systems end the process in that case.
    pub fn load<M: Machine<V::Elem, Vector = V>>(path: impl AsRef<Path>, machine: &M) -> Result<Operator<V>> {
        let kind = <M as Stores<V::Elem>>::KIND;
        let found = read(path.as_ref(), &keys::<V::Elem>(kind), |from, _| {
            Ok(match <M as Stores<V::Elem>>::load(from)? {
                Ok(operator) => Ok(operator),
                Err(choice) => Err((from.load::<Csr<V::Elem>>()?, choice)),
            })
        })?;
        found.or_else(|(matrix, choice)| Operator::in_format(&matrix, machine, choice.stored().format()))
    }
}

/// What a file must say of itself; whatever matrix is in it is right.
fn keys<T: Real>(kind: &str) -> Keys {
    Keys::new(&format!("a matrix of {} for {kind}", std::any::type_name::<T>()), 0, 0)
}
