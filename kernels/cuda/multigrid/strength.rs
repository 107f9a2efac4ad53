//! Strength of connection on a device.

use super::graph::{Blocks, Graph, RawGraph};
use crate::cuda::device::Array;
use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::launch::config;
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::matrix::device_csr::Misfit;
use crate::multigrid::DOMINANT;

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "strength.cu",
    text: concat!(include_str!("graph.cu"), "#line 1 \"strength.cu\"\n", include_str!("strength.cu")),
    constants: constants![],
    mirrors: &[mirror!("Graph" = RawGraph { offsets, columns, rows })],
};

/// Average number of blocks per row from which 16 lanes share a row; below, 4 lanes do. Guess.
const LONG: usize = 10;

/// Strong connections (`None` if all are), and a flag for each node that is left out of aggregation. Both are
/// bitwise equal to those of the host.
///
/// The pattern keeps the offsets of `a`: the column of a weak connection is replaced by the node itself,
/// which has no effect on aggregation. So entries keep their positions, and no row has to be counted.
///
/// If the matrix has more columns than rows (ghosts), `with_ghosts` takes one number for each row and appends those for the
/// further columns.
pub(super) fn strength<E: From<Error>>(
    a: &Blocks,
    theta: f64,
    with_ghosts: &mut dyn FnMut(Array<f64>) -> std::result::Result<Array<f64>, E>,
) -> std::result::Result<(Option<Graph>, Array<u8>), E> {
    let (device, nodes) = (a.values.device(), a.graph.rows());
    let (raw, values, size) = (a.graph.raw(), a.address(), (a.shape[0] * a.shape[1]) as u32);
    let (roots, strongest) = (device.uninitialized::<f64>(nodes)?, device.uninitialized::<f64>(nodes)?);
    let (left_out, weak) = (device.uninitialized::<u8>(nodes)?, Misfit::none(device)?);
    let (lanes, [couple, strong]) = match a.graph.entries() >= LONG * nodes {
        true => (16, ["coupling_rows_16", "strong_16"]),
        false => (4, ["coupling_rows_4", "strong_4"]),
    };
    let shared = config(nodes * lanes);
    let r = roots.address(0);
    queue!(device, f64, "inverse_roots", config(nodes), raw, values, size, r);
    let roots = with_ghosts(roots)?;
    let (r, s) = (roots.address(0), strongest.address(0));
    let (out, mark) = (left_out.address(0), weak.address());
    queue!(device, f64, couple, shared, raw, values, size, r, theta, DOMINANT, s, out, mark);
    let strongest = with_ghosts(strongest)?;
    let s = strongest.address(0);
    if !weak.is_set()? {
        return Ok((None, left_out));
    }
    let columns = device.uninitialized(a.graph.entries())?;
    let to = columns.address(0);
    queue!(device, f64, strong, shared, raw, values, size, r, theta, s, to);
    Ok((Some(a.graph.with_columns(columns)), left_out))
}

/// Turns a pattern of the strong connections alone into the form that `strength` returns: the pattern of `a`,
/// with the node itself in place of each weak connection.
pub fn spread(a: &Graph, strong: &Graph) -> Result<Graph> {
    let columns = a.device().uninitialized(a.entries())?;
    let (raw, from, to) = (a.raw(), strong.raw(), columns.address(0));
    queue!(a.device(), f64, "spread_strong", config(a.rows()), raw, from, to);
    Ok(a.with_columns(columns))
}
