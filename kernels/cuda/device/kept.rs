//! Objects that a device caches for the code that works on it, keyed by type: loaded kernels, cells (memory
//! of scalars), the state of the queued solver iteration.
//!
//! The module of the device does not depend on these types. Each object is created at first use, and lives as
//! long as the device.

use crate::cuda::device::error::Result;
use std::any::Any;
use std::sync::OnceLock;

/// The value of a cell, made at first use. An error is not kept: a GPU that was full may have memory later. Threads
/// that come first at the same time may each make a value; one is kept.
pub(crate) fn at_first_use<X>(cell: &OnceLock<X>, make: impl FnOnce() -> Result<X>) -> Result<&X> {
    if let Some(value) = cell.get() {
        return Ok(value);
    }
    match make() {
        Ok(made) => Ok(cell.get_or_init(|| made)),
        // memory may have sufficed for another thread only
        Err(error) => cell.get().ok_or(error),
    }
}

/// A linked list that only grows at its end, so that elements never move and are found without a lock.
#[derive(Debug, Default)]
pub(crate) struct KeptByType {
    first: OnceLock<Box<Node>>,
}

#[derive(Debug)]
struct Node {
    value: Box<dyn Any + Send + Sync>,
    next: OnceLock<Box<Node>>,
}

impl KeptByType {
    /// The object of a type. `X::default()` must not call this function, because the inner call may wait for
    /// the outer one.
    pub(crate) fn get<X: Any + Send + Sync + Default>(&self) -> &X {
        let mut link = &self.first;
        loop {
            let node =
                link.get_or_init(|| Box::new(Node { value: Box::new(X::default()), next: OnceLock::new() }));
            match node.value.downcast_ref() {
                Some(value) => return value,
                None => link = &node.next,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::device::error::Error;
    use std::sync::Mutex;

    #[test]
    fn errors_are_not_kept() {
        let cell = OnceLock::new();
        assert!(at_first_use(&cell, || Err(Error::Driver("full".into()))).is_err());
        assert_eq!(at_first_use(&cell, || Ok(1)).unwrap(), &1);
        assert_eq!(at_first_use(&cell, || Ok(2)).unwrap(), &1);
    }

    #[test]
    fn each_type_has_one_place_for_all_threads() {
        let kept = KeptByType::default();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    *kept.get::<Mutex<u32>>().lock().unwrap() += 1;
                    kept.get::<Mutex<Vec<f32>>>().lock().unwrap().push(1.0);
                    kept.get::<Mutex<Vec<f64>>>().lock().unwrap().push(2.0);
                });
            }
        });
        assert_eq!(*kept.get::<Mutex<u32>>().lock().unwrap(), 8);
        assert_eq!(*kept.get::<Mutex<Vec<f32>>>().lock().unwrap(), [1.0; 8]);
        assert_eq!(*kept.get::<Mutex<Vec<f64>>>().lock().unwrap(), [2.0; 8]);
    }
}
