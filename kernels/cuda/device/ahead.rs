//! Kernel files compiled in advance on background threads, while the host analyses a matrix.
//!
//! A solve needs about ten kernel files, a multigrid hierarchy as many more, and each takes half a second to
//! compile. The format that a matrix will have is not known at first, but the files that nearly every solve
//! needs are. On machines with more cores, files that are less likely to be needed are compiled too.

use super::element::{Real, Storage};
use super::module::{Source, load_or_compile};
use crate::cuda::device::error::Result;
use crate::cuda::device::lock;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::num::NonZero;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{JoinHandle, available_parallelism};

/// Identification of a compiled file: its name, arithmetic type, and storage type of matrices.
pub(super) type Key = [&'static str; 3];

/// Machine code, or the error. The first thread that needs the code compiles it; others wait.
type Code = OnceLock<Result<Vec<u8>>>;

/// Arithmetic and storage type that a file is compiled for, in a solve in `T`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum For {
    /// Arithmetic and storage in `T`.
    Solve,
    /// Arithmetic and storage in `f32`, for any `T`.
    Single,
    /// Arithmetic and storage in `f64`, for any `T`.
    Double,
    /// Arithmetic in `f64`, storage in `f32`, for any `T`.
    Rounding,
}

/// A file, and the types that it is compiled for.
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
    /// Arithmetic types for which compilation of the likely files has been started.
    begun: Mutex<Vec<&'static str>>,
}

impl Ahead {
    fn code(&self, key: Key) -> Arc<Code> {
        lock(&self.codes).entry(key).or_default().clone()
    }

    /// Returns the machine code of a file: waits for the thread that compiles it, or compiles it here.
    pub(super) fn take<T: Real, V: Storage<T>>(&self, source: &Source, arch: u32) -> Result<Vec<u8>> {
        let key = [source.file, T::C_NAME, V::STORED_AS];
        let code = self.code(key);
        let made = code.get_or_init(|| load_or_compile::<T, V>(source, arch)).clone();
        // remove the entry: the caller loads the code now, and after a failure the next caller tries again
        lock(&self.codes).remove(&key);
        made
    }

    /// Starts to compile the files that a solve in `T` most likely needs, as many as there are cores; only
    /// once per type.
    pub(super) fn begin<T: Real>(&self, arch: u32) {
        let mut begun = lock(&self.begun);
        if !begun.contains(&T::C_NAME) {
            begun.push(T::C_NAME);
            self.begin_with::<T>(crate::cuda::LIKELY.iter().copied().take(cores()), arch);
        }
    }

    /// Starts to compile files that a solve in `T` needs, as many at the same time as there are cores.
    pub(super) fn begin_with<T: Real>(&self, files: impl Iterator<Item = File>, arch: u32) {
        let mut codes = lock(&self.codes);
        let new = files.filter_map(|file| match codes.entry(file.1.key::<T>(file.0)) {
            Entry::Vacant(code) => Some((file, code.insert(Arc::default()).clone())),
            // its compilation was already started
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
            // if no thread can be started, the file is compiled when it is needed
            let thread = std::thread::Builder::new().name("krysp compiles".into()).spawn(work);
            lock(&self.threads).extend(thread);
        }
    }

    /// Waits for all threads. (A process that exits while the compiler runs would unload the compiler.)
    pub(super) fn wait(&self) {
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            // a panic was reported where it occurred
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
        // the second call starts nothing
        ahead.begin::<f64>(90);
        assert_eq!(lock(&ahead.threads).len(), began);
        let code = |taken| match taken {
            Err(Error::NoCompiler) => vec![],
            code => code.unwrap(),
        };
        let taken = code(ahead.take::<f64, f64>(&gate::SOURCE, 90));
        assert!(!lock(&ahead.codes).contains_key(&[gate::SOURCE.file, "double", "double"]));
        // one file, compiled for each pair of types
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
