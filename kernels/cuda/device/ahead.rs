//! Files of kernels compiled before they are asked for, on threads of their own, while the host looks at a matrix.
//!
//! A solve needs about ten files, a hierarchy of multigrid as many more, and the compiler takes half a second for each. Which
//! formats a matrix will have is not known at first; what nearly every solve needs is, and a processor with more cores guesses
//! further.

use super::element::{Real, Storage};
use super::module::{Source, load_or_compile};
use crate::cuda::device::error::Result;
use crate::cuda::device::lock;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::num::NonZero;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{JoinHandle, available_parallelism};

/// A file, an element, and what matrices store of it.
pub(super) type Key = [&'static str; 3];

/// Machine code, or why there is none; whoever asks first compiles, and others wait.
type Code = OnceLock<Result<Vec<u8>>>;

/// What a file is compiled for, in a solve in `T`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum For {
    /// `T`
    Solve,
    /// `f32`, whatever the solve
    Single,
    /// `f64`, whatever the solve
    Double,
    /// Numbers of `f64` into matrices that store `f32`, whatever the solve
    Rounding,
}

/// A file, and what it is compiled for.
pub(crate) type File = (&'static Source, For);

impl For {
    pub(super) fn key<T: Real>(self, source: &Source) -> Key {
        let [element, stored] = match self {
            For::Solve => [T::C_NAME, T::STORED_AS],
            For::Single => [f32::C_NAME, <f32 as Storage<f32>>::STORED_AS],
            For::Double => [f64::C_NAME, <f64 as Storage<f64>>::STORED_AS],
            For::Rounding => [f64::C_NAME, <f32 as Storage<f64>>::STORED_AS],
        };
        [source.file, element, stored]
    }

    fn compile<T: Real>(self, source: &Source, arch: u32) -> Result<Vec<u8>> {
        match self {
            For::Solve => load_or_compile::<T, T>(source, arch),
            For::Single => load_or_compile::<f32, f32>(source, arch),
            For::Double => load_or_compile::<f64, f64>(source, arch),
            For::Rounding => load_or_compile::<f64, f32>(source, arch),
        }
    }
}

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
        if !begun.contains(&T::C_NAME) {
            begun.push(T::C_NAME);
            self.begin_with::<T>(crate::cuda::LIKELY.iter().copied().take(cores()), arch);
        }
    }

    /// Begins with files that a solve in `T` needs: as many at once as there are cores.
    pub(super) fn begin_with<T: Real>(&self, files: impl Iterator<Item = File>, arch: u32) {
        let mut codes = lock(&self.codes);
        let new = files.filter_map(|file| match codes.entry(file.1.key::<T>(file.0)) {
            Entry::Vacant(code) => Some((file, code.insert(Arc::default()).clone())),
            // begun with, and perhaps never asked for
            Entry::Occupied(_) => None,
        });
        let new: Vec<(File, Arc<Code>)> = new.collect();
        drop(codes);
        let (most, left) = (cores().min(new.len()), Arc::new(Mutex::new(new.into_iter())));
        for _ in 0..most {
            let left = left.clone();
            let next = move || lock(&left).next();
            let work = move || {
                while let Some(((source, made_for), code)) = next() {
                    code.get_or_init(|| made_for.compile::<T>(source, arch));
                }
            };
            // without a thread the file is compiled when it is asked for
            let thread = std::thread::Builder::new().name("krysp compiles".into()).spawn(work);
            lock(&self.threads).extend(thread);
        }
    }

    /// Waits for all threads: a process that ends while the compiler runs would unload the compiler.
    pub(super) fn wait(&self) {
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            // a panic was reported where it happened
            let _ = thread.join();
        }
    }
}

fn cores() -> usize {
    available_parallelism().map_or(1, NonZero::get)
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::device::error::Error;
    use crate::cuda::formats::dia;
    use crate::cuda::solve::gate;
    use std::io::Write;

    #[test]
    fn what_was_begun_is_what_is_taken() {
        let ahead = Ahead::default();
        ahead.begin::<f64>(90);
        let began = lock(&ahead.threads).len();
        assert!(began > 0);
        // a second time nothing is begun
        ahead.begin::<f64>(90);
        assert_eq!(lock(&ahead.threads).len(), began);
        let code = |taken| match taken {
            Err(Error::NoCompiler) => vec![],
            code => code.unwrap(),
        };
        let taken = code(ahead.take::<f64, f64>(&gate::SOURCE, 90));
        assert!(!lock(&ahead.codes).contains_key(&[gate::SOURCE.file, "double", "double"]));
        // each for what it was asked for
        let all =
            [For::Solve, For::Single, For::Double, For::Rounding].map(|made_for| (&dia::SOURCE, made_for));
        ahead.begin_with::<f64>(all.into_iter(), 90);
        let began = lock(&ahead.threads).len();
        ahead.begin_with::<f64>(all.into_iter(), 90);
        assert_eq!(lock(&ahead.threads).len(), began);
        let single = code(ahead.take::<f32, f32>(&dia::SOURCE, 90));
        let rounding = code(ahead.take::<f64, f32>(&dia::SOURCE, 90));
        let double = code(ahead.take::<f64, f64>(&dia::SOURCE, 90));
        assert!(lock(&ahead.codes).keys().all(|key| key[0] != dia::SOURCE.file));
        if taken.is_empty() {
            let _ = writeln!(std::io::stderr(), "skipped: no NVRTC on this machine");
            return;
        }
        for made in [&taken, &single, &rounding, &double] {
            assert!(made.starts_with(b"\x7fELF"));
        }
        assert!(single != rounding && single != double && rounding != double);
    }
}
