//! For any bytes, the reader neither panics nor allocates much more memory than the bytes take. A matrix that was read
//! is equal to the matrix read again after writing.

#![no_main]

use krysp::io::matrix_market::{Content, parse, write_to};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = parse::<f32>(bytes);
    let Ok(content) = parse::<f64>(bytes) else { return };
    let mut text = Vec::new();
    write_to(&mut text, &content).expect("what is read is valid");
    let again = parse::<f64>(&text).expect("what is written is valid");
    match (content, again) {
        (Content::Coordinate(a), Content::Coordinate(b)) => {
            assert_eq!((a.rows, a.cols, a.row, a.col, a.symmetry), (b.rows, b.cols, b.row, b.col, b.symmetry));
            same(&a.value, &b.value);
        }
        (Content::Array { rows, cols, values }, Content::Array { rows: r, cols: c, values: v }) => {
            assert_eq!((rows, cols), (r, c));
            same(&values, &v);
        }
        _ => panic!("one layout became the other"),
    }
});

fn same(a: &[f64], b: &[f64]) {
    assert_eq!(a.len(), b.len());
    assert!(a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()));
}
