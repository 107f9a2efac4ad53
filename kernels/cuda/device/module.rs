//! Compilation of kernels from source to machine code, at run time for the device in use, and the cache of
//! the results.
//!
//! A constant that Rust and a kernel share is defined in Rust only, and is passed to the compiler with the
//! file. For a shared struct, its size is passed too, and in tests the offset of each field: if they differ,
//! the file does not compile.
//!
//! Compiled code is cached on disk. The name of a cached file depends on the whole source, the arithmetic and
//! storage types, the architecture and the version of the compiler. A corrupt file is ignored and written
//! again; if the folder is not writable, each process compiles its kernels.

use crate::cache;
use crate::cuda::device::compiler;
use crate::cuda::device::element::{Real, Storage};
use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::prelude::PRELUDE;
use cudarc::nvrtc::{result, sys};
use std::ffi::CString;
use std::path::PathBuf;

/// A file of kernels.
#[derive(Debug)]
pub struct Source {
    /// Name of the file.
    pub file: &'static str,
    /// Source text.
    pub text: &'static str,
    /// Constants passed from Rust.
    pub(crate) constants: &'static [Constant],
    /// Structs that are also defined in Rust.
    pub(crate) mirrors: &'static [Mirror],
}

/// A number or a list of numbers that is defined in Rust and has the same name in kernels.
#[derive(Debug)]
pub(crate) struct Constant {
    pub(crate) name: &'static str,
    value: Value,
}

#[derive(Debug)]
enum Value {
    One(i64),
    List(&'static [usize]),
}

impl Constant {
    pub(crate) const fn one(name: &'static str, value: i64) -> Constant {
        Constant { name, value: Value::One(value) }
    }

    pub(crate) const fn list(name: &'static str, values: &'static [usize]) -> Constant {
        Constant { name, value: Value::List(values) }
    }
}

/// Constants by name: `constants![A, B; C]`; those after the semicolon are arrays.
macro_rules! constants {
    ($($one:ident),* $(; $($list:ident),*)?) => {
        &[
            $($crate::cuda::device::module::Constant::one(stringify!($one), $one as i64),)*
            $($($crate::cuda::device::module::Constant::list(stringify!($list), &$list),)*)?
        ]
    };
}
pub(crate) use constants;

/// The Rust definition of a struct in a file of kernels: its size, and the offset of each field, for
/// arithmetic types of 4 and of 8 bytes.
#[derive(Debug)]
pub(crate) struct Mirror {
    /// Name of the struct in the file.
    pub(crate) name: &'static str,
    pub(crate) size: [usize; 2],
    /// Path of each field in Rust, whose last component is the field's name in the file, and its offsets.
    pub(crate) fields: &'static [(&'static str, [usize; 2])],
}

/// A struct of a file of kernels, its type in Rust, and the fields with equal names in both:
/// `mirror!("Csr<u32>" = RawCsr { offsets, columns })`; for generic types
/// `mirror!("Number" = RawNumber<f32> | RawNumber<f64> { factor })`.
macro_rules! mirror {
    ($name:literal = $single:ty | $double:ty { $($($field:ident).+),* $(,)? }) => {
        $crate::cuda::device::module::Mirror {
            name: $name,
            size: [size_of::<$single>(), size_of::<$double>()],
            fields: &[$((
                stringify!($($field).+),
                [std::mem::offset_of!($single, $($field).+), std::mem::offset_of!($double, $($field).+)],
            ),)*],
        }
    };
    ($name:literal = $type:ty { $($fields:tt)* }) => { mirror!($name = $type | $type { $($fields)* }) };
}
pub(crate) use mirror;

impl Source {
    /// The text to compile for an arithmetic type: prelude and file, each preceded by its constants, and the
    /// assertions about structs.
    pub(crate) fn whole<T: Real>(&self) -> String {
        let (mut whole, mut mirrored) = (String::new(), String::new());
        for part in [&PRELUDE, self] {
            part.constants.iter().for_each(|constant| whole += &constant.declaration());
            whole += &format!("#line 1 \"{}\"\n{}\n", part.file, part.text);
            part.mirrors.iter().for_each(|mirror| mirrored += &mirror.assertions::<T>());
        }
        whole + "#line 1 \"mirrors in Rust\"\n" + &mirrored
    }
}

impl Mirror {
    /// Assertions that fail to compile if the struct has another size or other offsets. Offsets are compared
    /// in tests only: not every compiler accepts the expression for an offset, but all of them lay out
    /// structs alike.
    fn assertions<T>(&self) -> String {
        let Mirror { name, size, fields } = self;
        let element = usize::from(size_of::<T>() == 8);
        let mut all = format!("static_assert(sizeof({name}) == {}, \"{name} in Rust\");\n", size[element]);
        for (path, offsets) in fields.iter().filter(|_| cfg!(test)) {
            let field = path.rsplit('.').next().unwrap_or(path).trim();
            let (at, offset) = (format!("__INTADDR__(&((({name}*)0)->{field}))"), offsets[element]);
            all += &format!("static_assert({at} == {offset}, \"{name}.{field} in Rust\");\n");
        }
        all
    }
}

impl Constant {
    /// Declaration in C++. A list becomes a template with the index as argument, so that each element is a
    /// compile-time constant.
    fn declaration(&self) -> String {
        let name = self.name;
        match self.value {
            Value::One(value) => {
                let c_type = if i32::try_from(value).is_ok() { "int" } else { "unsigned" };
                format!("constexpr {c_type} {name} = {value};\n")
            }
            Value::List(values) => {
                let cases = values.iter().enumerate().map(|(at, value)| format!("AT == {at} ? {value} : "));
                format!("template <int AT> constexpr int {name} = {}-1;\n", cases.collect::<String>())
            }
        }
    }
}

/// Compiles a file for an arithmetic type, a storage type and an architecture (90 for `sm_90`) to machine
/// code.
pub fn compile<T: Real, V: Storage<T>>(source: &Source, arch: u32) -> Result<Vec<u8>> {
    Ok(compile_with_log::<T, V>(source, arch)?.0)
}

/// Like [`compile`], and also returns the compiler's log: registers and spilled bytes of each kernel.
pub(crate) fn compile_with_log<T: Real, V: Storage<T>>(
    source: &Source,
    arch: u32,
) -> Result<(Vec<u8>, String)> {
    if !compiler::is_present() {
        return Err(Error::NoCompiler);
    }
    let failed = |log: String| Error::Compile { file: source.file, arch, log };
    let text = CString::new(source.whole::<T>()).map_err(|_| failed("a zero byte in the source".into()))?;
    let program = result::create_program(&text, None).map_err(|e| failed(e.to_string()))?;
    let options = [
        format!("-arch=sm_{arch}"),
        "-std=c++17".into(),
        format!("-DREAL={}", T::C_NAME),
        format!("-DSTORED={}", V::STORED_AS),
        "-default-device".into(),
        "--ptxas-options=-v".into(),
    ];
    // SAFETY: the program was just created and is destroyed once, below
    let compiled = unsafe { result::compile_program(program, &options) };
    // SAFETY: the program is not destroyed yet
    let log = unsafe { result::get_program_log(program) }
        .map(|log| log.iter().map(|&c| c as u8 as char).filter(|&c| c != '\0').collect::<String>());
    let code = match (compiled, log) {
        (Ok(()), log) => cubin(program).map(|code| (code, log.unwrap_or_default())).map_err(failed),
        (Err(_), Ok(log)) => Err(failed(log)),
        (Err(error), Err(_)) => Err(failed(error.to_string())),
    };
    // SAFETY: the program is not used afterwards
    let _ = unsafe { result::destroy_program(program) };
    code
}

fn cubin(program: sys::nvrtcProgram) -> std::result::Result<Vec<u8>, String> {
    let mut size = 0;
    // SAFETY: the program is not destroyed yet; the size is written to a local
    let status = unsafe { sys::nvrtcGetCUBINSize(program, &mut size) };
    status.result().map_err(|e| e.to_string())?;
    let mut code = vec![0u8; size];
    // SAFETY: the buffer has the length that the compiler reported
    let status = unsafe { sys::nvrtcGetCUBIN(program, code.as_mut_ptr().cast()) };
    status.result().map_err(|e| e.to_string())?;
    Ok(code)
}

/// Machine code from the cache, or compiled now.
pub(crate) fn load_or_compile<T: Real, V: Storage<T>>(source: &Source, arch: u32) -> Result<Vec<u8>> {
    let path = cache_path::<T, V>(source, arch);
    if let Some(code) = path.as_ref().and_then(|path| unsealed(std::fs::read(path).ok()?)) {
        return Ok(code);
    }
    let code = compile::<T, V>(source, arch)?;
    if let Some(path) = path {
        // ignore errors: without the cache, kernels are compiled again in the next process
        let _ = cache::write_whole(&path, &sealed(&code));
    }
    Ok(code)
}

fn cache_path<T: Real, V: Storage<T>>(source: &Source, arch: u32) -> Option<PathBuf> {
    let [start, end] = cache_name::<T, V>(source)?;
    Some(cache::folder()?.join(format!("{start}{arch}{end}")))
}

/// The parts of a cached file's name before and after the architecture.
fn cache_name<T: Real, V: Storage<T>>(source: &Source) -> Option<[String; 2]> {
    let (major, minor) = compiler::compiler_version()?;
    let version = [major.to_le_bytes(), minor.to_le_bytes()].concat();
    let key = hash([source.whole::<T>().as_bytes(), &version]);
    let stem = source.file.trim_end_matches(".cu");
    Some([format!("{stem}-{}-{}-sm", T::C_NAME, V::STORED_AS), format!("-{key:016x}.cubin")])
}

/// Returns whether the cache has machine code of a file for at least one architecture.
pub(crate) fn is_compiled<T: Real, V: Storage<T>>(source: &Source) -> bool {
    let (Some([start, end]), Some(folder)) = (cache_name::<T, V>(source), cache::folder()) else {
        return false;
    };
    let is_it = |name: &str| name.starts_with(&start) && name.ends_with(&end);
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    files.into_iter().any(|file| file.file_name().to_str().is_some_and(is_it))
}

/// FNV-1a hash of all parts.
fn hash<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> u64 {
    let bytes = parts.into_iter().flatten();
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The code, preceded by its hash.
fn sealed(code: &[u8]) -> Vec<u8> {
    let mut file = hash([code]).to_le_bytes().to_vec();
    file.extend_from_slice(code);
    file
}

/// The code in a file; `None` if its hash does not match.
fn unsealed(file: Vec<u8>) -> Option<Vec<u8>> {
    let (seal, code) = file.split_first_chunk::<8>()?;
    (u64::from_le_bytes(*seal) == hash([code])).then(|| code.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_declared_as_what_they_fit() {
        const MANY: [usize; 2] = [5, 6];
        const TOP: u32 = 1 << 31;
        let constants: &[Constant] = constants![TOP; MANY];
        let declared: Vec<String> = constants.iter().map(Constant::declaration).collect();
        let expected = [
            "constexpr unsigned TOP = 2147483648;\n",
            "template <int AT> constexpr int MANY = AT == 0 ? 5 : AT == 1 ? 6 : -1;\n",
        ];
        assert_eq!(declared, expected);
    }

    /// The words of a text that may be names.
    fn words(text: &str) -> impl Iterator<Item = &str> {
        text.split(|c: char| !c.is_alphanumeric() && c != '_')
    }

    /// Returns whether a file of kernels defines a name.
    fn defines(text: &str, name: &str) -> bool {
        text.lines().map(str::trim_start).filter(|line| !line.starts_with("//")).any(|line| {
            match line.strip_prefix("#define ") {
                Some(macro_) => words(macro_).next() == Some(name),
                None => {
                    let behind =
                        line.match_indices(name).map(|(at, _)| (&line[..at], &line[at + name.len()..]));
                    let constant = line.contains("constexpr") || line.starts_with("enum");
                    let is_word = |before: &str| !before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
                    let mut defined = behind.filter(|(before, _)| is_word(before));
                    constant && defined.any(|(_, behind)| behind.starts_with(" = "))
                }
            }
        })
    }

    #[test]
    fn what_rust_hands_over_is_used_and_not_defined_again() {
        assert!(defines("constexpr int A = 1, B = 2;", "B") && defines("enum C : u32 { A = 0 };", "A"));
        assert!(defines("#define A 1", "A") && !defines("constexpr int AB = A;", "A"));
        let sources: Vec<&Source> = crate::cuda::SOURCES.to_vec();
        for source in &sources {
            for Constant { name, .. } in source.constants {
                assert!(!defines(source.text, name), "{} defines {name}, which Rust hands over", source.file);
                assert!(words(source.text).any(|word| word == *name), "{} does not use {name}", source.file);
            }
        }
        for Constant { name, .. } in PRELUDE.constants {
            let all = || sources.iter().copied().chain([&PRELUDE]);
            let definer = all().find(|source| defines(source.text, name)).map(|source| source.file);
            assert_eq!(definer, None, "{name}, which Rust hands over");
            assert!(all().any(|source| words(source.text).any(|word| word == *name)), "nothing uses {name}");
        }
    }

    /// Checks that the struct named in each SAFETY comment of a `DeviceRepr` has a [`Mirror`].
    #[test]
    fn every_mirror_is_compared() {
        let folders = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/cuda")).unwrap();
        let folders = folders.map(|folder| folder.unwrap().path()).filter(|folder| folder.is_dir());
        let mut found = 0;
        for file in folders.flat_map(|folder| std::fs::read_dir(folder).unwrap()) {
            let path = file.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let lines: Vec<&str> = text.lines().map(str::trim).collect();
            let implemented =
                |line: &&[&str]| line[1].starts_with("unsafe impl") && line[1].contains("DeviceRepr for");
            for pair in lines.windows(2).filter(implemented) {
                let (_, named) = pair[0].split_once("// SAFETY: has the layout of `").unwrap();
                let (name, _) = named.split_once('`').unwrap();
                let is_it = |mirror: &Mirror| mirror.name.split('<').next() == Some(name);
                let mut sources = crate::cuda::SOURCES.iter().copied().chain([&PRELUDE]);
                let compared = sources.any(|source| source.mirrors.iter().any(is_it));
                assert!(compared, "{}: no mirror of `{name}`", path.display());
                found += 1;
            }
        }
        assert!(found > 30, "{found}");
    }

    #[test]
    fn a_mirror_of_another_size_or_order_does_not_compile() {
        #[repr(C)]
        struct Swapped {
            count: u32,
            wide: u32,
            offsets: u64,
        }
        const RIGHT: Mirror = mirror!("RowStarts" = [u64; 2] {});
        const SIZE: Mirror = mirror!("RowStarts" = [u64; 3] {});
        const ORDER: Mirror = mirror!("RowStarts" = Swapped { offsets });
        let compiled = |mirrors| {
            let source = Source { file: "mirror.cu", text: "", constants: &[], mirrors };
            compile::<f64, f64>(&source, 90)
        };
        match compiled(&[RIGHT]) {
            Err(Error::NoCompiler) => return,
            right => assert!(right.is_ok(), "{right:?}"),
        }
        for (wrong, what) in
            [(compiled(&[SIZE]), "RowStarts in Rust"), (compiled(&[ORDER]), "RowStarts.offsets")]
        {
            let Err(Error::Compile { log, .. }) = wrong else { panic!("a mirror that differs compiles") };
            assert!(log.contains(what), "{log}");
        }
    }

    #[test]
    fn only_intact_sealed_code_is_unsealed() {
        let code = b"machine code".to_vec();
        assert_eq!(unsealed(sealed(&code)), Some(code.clone()));
        let mut corrupt = sealed(&code);
        corrupt[9] ^= 1;
        assert_eq!(unsealed(corrupt), None);
        assert_eq!(unsealed(sealed(&code)[..11].to_vec()), None);
        assert_eq!(unsealed(vec![1, 2]), None);
    }
}
