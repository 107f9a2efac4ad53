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
    let (of, values, size) = (&a.graph, &a.values, (a.shape[0] * a.shape[1]) as u32);
    let (roots, strongest) = (device.uninitialized::<f64>(nodes)?, device.uninitialized::<f64>(nodes)?);
    let (left_out, weak) = (device.uninitialized::<u8>(nodes)?, Misfit::none(device)?);
    let (lanes, [couple, strong]) = match a.graph.entries() >= LONG * nodes {
        true => (16, ["coupling_rows_16", "strong_16"]),
        false => (4, ["coupling_rows_4", "strong_4"]),
    };
    queue!(device, f64, "inverse_roots", config(nodes), of, values, size, roots);
    let (roots, cut, mark) = (with_ghosts(roots)?, config(nodes * lanes), weak.address());
    queue!(device, f64, couple, cut, of, values, size, roots, theta, DOMINANT, strongest, left_out, mark);
    let strongest = with_ghosts(strongest)?;
    if !weak.is_set()? {
        return Ok((None, left_out));
    }
    let columns = device.uninitialized(a.graph.entries())?;
    queue!(device, f64, strong, cut, of, values, size, roots, theta, strongest, columns);
    Ok((Some(a.graph.with_columns(columns)), left_out))
}

/// Turns a pattern of the strong connections alone into the form that `strength` returns: the pattern of `a`,
/// with the node itself in place of each weak connection.
pub fn spread(a: &Graph, strong: &Graph) -> Result<Graph> {
    let columns = a.device().uninitialized(a.entries())?;
    queue!(a.device(), f64, "spread_strong", config(a.rows()), a, strong, columns);
    Ok(a.with_columns(columns))
}
