//! Everything that is tested through the public interface, in one program: it compiles the library's loops once.

mod choice;
mod endings;
mod fem;
mod golden;
mod matrix_market;
mod matrix_market_errors;
mod methods;
mod preconditioners;
mod properties;
mod theory;
