//! The one list of formats.

/// Gives every format to a macro, a line for each:
///
/// ```text
/// file: Type, memory, refusals;
/// ```
///
/// `file` is the module in `src/formats`. `memory` is `host` for a format of host memory alone, and `gpu` for one that can
/// be on a GPU as well. `refusals` is the function of `krysp::testing::laws::refusals` that says which matrices the format
/// may refuse with default options. Where two formats cost the same, the chooser takes the first of this list.
///
/// The library re-exports formats by this list, the chooser goes through it, and so do tests and benches.
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

/// Code for the formats of [`each_format`] that can be on a GPU, and none for the others.
#[doc(hidden)]
#[macro_export]
macro_rules! where_on_gpu {
    (gpu, $($code:tt)*) => { $($code)* };
    (host, $($code:tt)*) => {};
}
