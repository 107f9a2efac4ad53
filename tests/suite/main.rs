//! All tests through the public interface, in one program, so that the library's loops are compiled once. All of them run
//! at the best SIMD level of the CPU: tests that force another one, for the whole process, are in `tests/conformance`.

mod amg;
mod block_cg;
mod budgets;
mod chebyshev;
mod clustering;
mod declarations;
mod direct;
mod documents;
mod endings;
mod entries;
mod fem;
mod files;
mod flexible;
mod golden;
mod hard;
mod indefinite;
mod interrupt;
mod irregular;
mod many;
mod matrix_market;
mod matrix_market_errors;
mod methods;
mod null_space;
mod plan;
mod preconditioners;
mod properties;
mod ranks;
mod refresh;
mod saddle;
mod saved;
mod simd;
mod strict;
mod theory;
mod truth;
mod two_level;
