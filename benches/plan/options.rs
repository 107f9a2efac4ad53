//! Options of the command line.

use crate::Result;
use std::ops::Range;
use std::time::Duration;

/// Options of the bench: which systems it solves, how often, and what it prints.
pub(crate) struct Options {
    pub(crate) gpu: bool,
    pub(crate) rows: Range<usize>,
    pub(crate) solves: Vec<usize>,
    pub(crate) limit: Duration,
    pub(crate) against: bool,
    /// `--part K/N`: which of N equal parts of the list of matrices to solve, counted from 1, and N.
    pub(crate) part: [usize; 2],
    pub(crate) explain: bool,
    pub(crate) once: Option<Once>,
    pub(crate) transient: bool,
    pub(crate) elastic: bool,
    pub(crate) wanted: Vec<String>,
}

/// Comparisons that are made instead of comparing solves.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Once {
    Products,
    Loading,
}

/// Reads the arguments of the process.
pub(crate) fn options() -> Result<Options> {
    let mut options = Options {
        gpu: false,
        rows: 0..usize::MAX,
        solves: vec![1],
        limit: Duration::from_secs(60),
        against: false,
        part: [1, 1],
        explain: false,
        once: None,
        transient: false,
        elastic: false,
        wanted: vec![],
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = |what: &str| args.next().ok_or(format!("{arg} needs {what}"));
        match &*arg {
            // `--parts` is read by the loops themselves
            "--bench" | "--parts" => {}
            "--gpu" => options.gpu = true,
            "--explain" => options.explain = true,
            "--transient" => options.transient = true,
            "--elastic" => options.elastic = true,
            "--products" => options.once = Some(Once::Products),
            "--loading" => options.once = Some(Once::Loading),
            "--against" => options.against = true,
            "--part" => {
                let part = value("K/N")?;
                let (own, of) = part.split_once('/').ok_or("--part needs K/N")?;
                options.part = [own.parse()?, of.parse()?];
            }
            "--limit" => options.limit = Duration::from_secs_f64(value("seconds")?.parse()?),
            "--solves" => {
                options.solves =
                    value("numbers")?.split(',').map(str::parse).collect::<std::result::Result<_, _>>()?;
            }
            "--rows" => {
                let range = value("FROM..TO")?;
                let (from, to) = range.split_once("..").ok_or("--rows needs FROM..TO")?;
                options.rows = from.parse()?..to.parse()?;
            }
            name => options.wanted.push(name.into()),
        }
    }
    Ok(options)
}
