//! The format of saved files: type, integrity and compatibility.
//!
//! ```text
//! 8 bytes    magic number
//! 8 bytes    the length of the file
//! 8 bytes    the checksum of everything that follows
//! keys       version, architecture, kind of content and machine, fingerprints of the matrix
//! content
//! ```
//!
//! Keys and content are values, each of which follows the 8 bytes of its schema.
//!
//! The checksum is verified before anything else is interpreted, then the keys are compared. A file is
//! written under a temporary name and renamed when it is complete, so that processes that have mapped an
//! older file of that name keep its content.

use super::checksum::checksum;
use super::{InconsistentData, Loaded, Reader, Saved, Schema, Writer, saved};
use crate::error::{Error, ReadError, Result, SavedFileError, WriteError};
use krysp_kernels::cpu::simd;
use krysp_kernels::map::map_file;
use std::any::Any;
use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

/// Magic number: a byte that does not occur in text, and a line end that text conversions would change.
const NAME: [u8; 8] = *b"\x8bkrysp\r\n";

/// Size of the header: magic number, length and checksum.
const HEAD: usize = 24;

/// Properties that must match for a file to be usable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    version: String,
    architecture: String,
    kind: String,
    pub(crate) pattern: u64,
    pub(crate) values: u64,
}

saved!(impl[] Keys { version, architecture, kind, pattern, values });

impl Keys {
    /// Keys for this kind of content, and for a matrix with these fingerprints.
    pub(crate) fn new(kind: &str, pattern: u64, values: u64) -> Keys {
        let byte_order = if cfg!(target_endian = "big") { "big" } else { "little" };
        Keys {
            version: env!("CARGO_PKG_VERSION").into(),
            // the height of slices depends on the SIMD width
            architecture: format!("{} {:?} {byte_order}", std::env::consts::ARCH, simd::level()),
            kind: kind.into(),
            pattern,
            values,
        }
    }

    /// The reason why a file with the keys `found` is not usable, if there is one. The fingerprints of the
    /// values may differ.
    fn refuses(&self, found: &Keys) -> Option<SavedFileError> {
        let differ =
            |ours: &String, theirs: &String| (ours != theirs).then(|| (theirs.clone(), ours.clone()));
        if let Some((saved, here)) = differ(&self.version, &found.version) {
            return Some(SavedFileError::Version { saved, here });
        }
        if let Some((saved, here)) = differ(&self.architecture, &found.architecture) {
            return Some(SavedFileError::Architecture { saved, here });
        }
        if let Some((saved, here)) = differ(&self.kind, &found.kind) {
            return Some(SavedFileError::Kind { saved, here });
        }
        (self.pattern != found.pattern).then_some(SavedFileError::PatternMismatch)
    }
}

/// Writes the values of a file.
pub struct FileWriter<'f>(Writer<'f>);

impl FileWriter<'_> {
    /// Writes a value after its schema.
    pub(crate) fn write<X: Saved>(&mut self, value: &X) {
        Schema::hash::<X>().save(&mut self.0);
        value.save(&mut self.0);
    }

    /// Registers a shared value that the reader already has.
    pub(crate) fn knows<X: Any + Send + Sync>(&mut self, known: &Arc<X>) {
        self.0.shared.push(known.clone());
    }
}

/// Reads the values of a file.
pub struct FileReader<'f> {
    reader: Reader<'f>,
    /// The schemas, of the file and of this program, that differ.
    differing: Option<[u64; 2]>,
}

impl FileReader<'_> {
    /// Reads a value whose schema is that of `X`.
    pub(crate) fn read<X: Saved>(&mut self) -> Loaded<X> {
        let [saved, here] = [self.reader.load()?, Schema::hash::<X>()];
        if saved != here {
            self.differing = Some([saved, here]);
            return Err(InconsistentData);
        }
        self.reader.load()
    }

    /// Sets the names that strings of the program (`&'static str`) may have.
    pub(crate) fn knows_names(&mut self, names: Vec<&'static str>) {
        self.reader.names = names;
    }

    /// Registers the same shared values as the writer, in the same order.
    pub(crate) fn knows<X: Any + Send + Sync>(&mut self, known: &Arc<X>) {
        self.reader.shared.push(known.clone());
    }

    /// Returns the reason why reading failed.
    fn failure(&self) -> SavedFileError {
        if let Some(name) = &self.reader.unknown {
            return SavedFileError::Format { name: name.clone() };
        }
        // where the keys differ, the version cannot be read
        self.differing.map_or(SavedFileError::Inconsistent, |[saved, here]| SavedFileError::Version {
            saved: format!("unknown (fields {saved:016x})"),
            here: format!("{} (fields {here:016x})", env!("CARGO_PKG_VERSION")),
        })
    }
}

/// Writes a file.
pub(crate) fn write(path: &Path, keys: &Keys, content: impl FnOnce(&mut FileWriter<'_>)) -> Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let beside = Path::new(&beside);
    let written = write_whole(beside, keys, content).and_then(|()| std::fs::rename(beside, path));
    written.map_err(|error| {
        // remove the incomplete file, if there is one
        let _ = std::fs::remove_file(beside);
        Error::Write(WriteError::Io { path: Some(path.to_owned()), source: error })
    })
}

fn write_whole(path: &Path, keys: &Keys, content: impl FnOnce(&mut FileWriter<'_>)) -> io::Result<()> {
    let mut file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
    let mut buffered = BufWriter::new(&mut file);
    buffered.write_all(&[0; HEAD])?;
    let mut writer = FileWriter(Writer::new(&mut buffered));
    writer.write(keys);
    content(&mut writer);
    writer.0.failed.map_or(Ok(()), Err)?;
    buffered.flush()?;
    drop(buffered);
    let sum = checksum(&map_file(&file)?[HEAD..]);
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&[NAME, length.to_le_bytes(), sum.to_le_bytes()].concat())?;
    file.sync_all()
}

/// Reads a file whose keys match, except that the values may differ. `content` reads the content; its second
/// argument reports whether the values differ. The file must not be truncated meanwhile, because that would end
/// the process; [`write`] never truncates a file.
pub(crate) fn read<X>(
    path: &Path,
    keys: &Keys,
    content: impl FnOnce(&mut FileReader<'_>, bool) -> Loaded<X>,
) -> Result<X> {
    let unusable = |why| Error::Saved { path: path.to_owned(), why };
    let failed = |source| Error::Read(ReadError::Io { path: path.to_owned(), source });
    let file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?;
    if !length.is_file() || length.len() < HEAD as u64 {
        return Err(unusable(SavedFileError::NotSaved));
    }
    let bytes = &*map_file(&file).map_err(failed)?;
    let (head, body) = bytes.split_at_checked(HEAD).ok_or_else(|| unusable(SavedFileError::NotSaved))?;
    let [name, stated, sum] = [0, 8, 16].map(|at| {
        let mut number = [0; 8];
        number.copy_from_slice(&head[at..at + 8]);
        number
    });
    if name != NAME {
        return Err(unusable(SavedFileError::NotSaved));
    }
    let (stated, found) = (u64::from_le_bytes(stated), bytes.len() as u64);
    if stated != found {
        return Err(unusable(SavedFileError::Length { stated, found }));
    }
    if u64::from_le_bytes(sum) != checksum(body) {
        return Err(unusable(SavedFileError::Damaged));
    }
    let mut reader = FileReader { reader: Reader::new(body), differing: None };
    let Ok(found) = reader.read::<Keys>() else { return Err(unusable(reader.failure())) };
    if let Some(why) = keys.refuses(&found) {
        return Err(unusable(why));
    }
    match content(&mut reader, keys.values != found.values) {
        Ok(read) if reader.reader.left.is_empty() => Ok(read),
        _ => Err(unusable(reader.failure())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Written {
        size: usize,
        value: f64,
    }
    saved!(impl[] Written { size, value });

    /// The same struct in a later program.
    #[derive(Debug)]
    struct Changed {
        size: usize,
        value: f32,
    }
    saved!(impl[] Changed { size, value });

    #[test]
    fn a_file_with_other_fields_is_refused() {
        let path = std::env::temp_dir().join(format!("krysp_fields_{}", std::process::id()));
        let keys = Keys::new("a test", 1, 2);
        write(&path, &keys, |to| to.write(&Written { size: 3, value: 4.0 })).unwrap();
        let same: Written = read(&path, &keys, |from, _| from.read()).unwrap();
        assert_eq!((same.size, same.value), (3, 4.0));
        let refused = read::<Changed>(&path, &keys, |from, _| from.read());
        let Err(Error::Saved { why: SavedFileError::Version { saved, here }, .. }) = refused else {
            panic!("{refused:?}")
        };
        let [of_file, of_program] = [Schema::hash::<Written>(), Schema::hash::<Changed>()];
        assert!(saved.ends_with(&format!("(fields {of_file:016x})")), "{saved}");
        assert!(here.ends_with(&format!("(fields {of_program:016x})")), "{here}");
        std::fs::remove_file(path).unwrap();
    }
}
