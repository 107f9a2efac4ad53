//! The list of formats, defined once.

/// Passes every format to a macro, one line for each:
///
/// ```text
/// file: Type, memory, refusals;
/// ```
///
/// `file` is the module in `src/formats`. `memory` is `host` for a format that exists in host memory only,
/// and `gpu` for one that can be in GPU memory too. `refusals` is the function of
/// `krysp::testing::laws::refusals` that states which matrices the format may reject with default options. If
/// two formats have the same predicted cost, the automatic choice selects the one that comes first in this
/// list.
///
/// The library re-exports formats from this list, and the automatic choice, tests and benches iterate over
/// it.
#[doc(hidden)]
#[macro_export]
macro_rules! each_format {
    ($do:ident) => {
        $do! {
            csr: Csr, gpu, nothing;
            dia: Dia, gpu, many_diagonals;
            bsr: Bsr, gpu, anything;
            sell: Sell, gpu, nothing;
            ell: Ell, gpu, mostly_padding;
            ellpack_r: EllpackR, gpu, mostly_padding;
            hyb: Hyb, gpu, nothing;
            coo: Coo, gpu, nothing;
            ehyb: Ehyb, gpu, nothing;
            symmetric: SymCsr, gpu, unsymmetric;
            symmetric_bsr: SymBsr, gpu, anything;
            halo: Halo, gpu, nothing;
        }
    };
}

/// Expands to the given code for formats of [`each_format`] that can be in GPU memory, and to nothing for
/// others.
#[doc(hidden)]
#[macro_export]
macro_rules! where_on_gpu {
    (gpu, $($code:tt)*) => { $($code)* };
    (host, $($code:tt)*) => {};
}

// `macro_export` puts them into the crate root alone
pub(crate) use each_format;
#[cfg(feature = "cuda")]
pub(crate) use where_on_gpu;
