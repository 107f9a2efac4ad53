//! Files of kernels compiled before they are asked for, each on a thread of its own, while the host looks at a matrix.
//!
//! A solve needs about ten files, and the compiler takes half a second for each. Which formats a matrix will have is not known
//! yet; what nearly every solve needs is, and a processor with more cores guesses further.

use super::element::{Real, Storage};
use super::module::{Source, load_or_compile};
use crate::cuda::device::error::Result;
use crate::cuda::device::lock;
use std::collections::HashMap;
use std::num::NonZero;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{JoinHandle, available_parallelism};

/// A file, an element, and what matrices store of it.
pub(super) type Key = [&'static str; 3];

/// Machine code, or why there is none; whoever asks first compiles, and others wait.
type Code = OnceLock<Result<Vec<u8>>>;

/// Files that are compiled or being compiled, and not loaded yet.
#[derive(Default)]
pub(super) struct Ahead {
    codes: Mutex<HashMap<Key, Arc<Code>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Elements whose files were begun with.
    begun: Mutex<Vec<&'static str>>,
}

impl Ahead {
    fn code(&self, key: Key) -> Arc<Code> {
        lock(&self.codes).entry(key).or_default().clone()
    }

    /// The machine code of a file: from a thread that began with it, or made here.
    pub(super) fn take<T: Real, V: Storage<T>>(&self, source: &Source, arch: u32) -> Result<Vec<u8>> {
        let key = [source.file, T::C_NAME, V::STORED_AS];
        let code = self.code(key);
        let made = code.get_or_init(|| load_or_compile::<T, V>(source, arch)).clone();
        // it is loaded now; what failed may be tried again
        lock(&self.codes).remove(&key);
        made
    }

    /// Begins with what a solve in `T` is likely to need: as many files as there are cores. Does so once.
    pub(super) fn begin<T: Real>(&self, arch: u32) {
        let mut begun = lock(&self.begun);
        if begun.contains(&T::C_NAME) {
            return;
        }
        begun.push(T::C_NAME);
        let cores = available_parallelism().map_or(1, NonZero::get);
        for &(source, any_element) in crate::cuda::LIKELY.iter().take(cores) {
            if any_element {
                self.spawn::<f32>(source, arch);
            } else {
                self.spawn::<T>(source, arch);
            }
        }
    }

    fn spawn<T: Real>(&self, source: &'static Source, arch: u32) {
        let code = self.code([source.file, T::C_NAME, T::STORED_AS]);
        let work = move || {
            code.get_or_init(|| load_or_compile::<T, T>(source, arch));
        };
        // without a thread the file is compiled when it is asked for
        let thread = std::thread::Builder::new().name("krysp compiles".into()).spawn(work);
        lock(&self.threads).extend(thread);
    }
}

/// Waits: a program that ends while the compiler runs would take away what it runs on.
impl Drop for Ahead {
    fn drop(&mut self) {
        for thread in lock(&self.threads).drain(..) {
            // a panic was told where it happened
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::device::error::Error;
    use crate::cuda::solve::gate;

    #[test]
    fn what_was_begun_is_what_is_taken() {
        let ahead = Ahead::default();
        ahead.begin::<f64>(90);
        let began = lock(&ahead.threads).len();
        assert!(began > 0);
        // a second time nothing is begun
        ahead.begin::<f64>(90);
        assert_eq!(lock(&ahead.threads).len(), began);
        match ahead.take::<f64, f64>(&gate::SOURCE, 90) {
            Err(Error::NoCompiler) => {}
            code => assert!(code.unwrap().starts_with(b"\x7fELF")),
        }
        assert!(!lock(&ahead.codes).contains_key(&[gate::SOURCE.file, "double", "double"]));
    }
}
