//! Deterministic pseudo-random numbers: a hash of indices for parallel generators, and two small streams.

/// The splitmix64 finalizer: hashes 64 bits to 64 bits.
pub fn mix(bits: u64) -> u64 {
    let z = bits.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The upper 53 bits as a number in [0, 1).
pub fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// The value of entry `(row, column)` in the hashed matrices: symmetric, 4 to 5 on the diagonal, -1.5 to -0.5
/// elsewhere.
pub fn symmetric_value(row: u64, column: u64) -> f64 {
    let (low, high) = (row.min(column), row.max(column));
    if low == high {
        4.0 + unit(mix(low))
    } else {
        -0.5 - unit(mix(low.wrapping_mul(0x100_0000_01B3) ^ mix(high)))
    }
}

/// The right-hand side or test vector for the hashed matrices: entries in [-½, ½).
pub fn vector(length: usize) -> Vec<f64> {
    (0..length as u64).map(|i| unit(mix(i + 999)) - 0.5).collect()
}

/// The generator splitmix64. Any seed is good.
#[derive(Clone, Debug)]
pub struct SplitMix(u64);

impl SplitMix {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        let bits = mix(self.0);
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        bits
    }

    /// The next number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        unit(self.bits())
    }

    /// The next number in [0, bound), for a bound so far below 2⁶⁴ that the bias of the remainder does not matter.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.bits() % bound.max(1)
    }
}

/// The generator xorshift64* with a fixed seed, for [`rmat`](super::rmat) and [`circuit`](super::circuit).
#[derive(Clone, Debug)]
pub(super) struct XorShift(u64);

impl XorShift {
    /// The stream after `draws` draws, computed without drawing, so that threads can start anywhere in one sequence. A
    /// draw is linear over GF(2), hence a 64 x 64 bit matrix; squaring raises the matrix to the power `draws`.
    pub(super) fn after(draws: u64) -> Self {
        let mut power: [u64; 64] = std::array::from_fn(|bit| step(1 << bit));
        let mut state = 88_172_645_463_325_252;
        let mut left = draws;
        while left > 0 {
            if left & 1 == 1 {
                state = times(&power, state);
            }
            power = std::array::from_fn(|bit| times(&power, power[bit]));
            left >>= 1;
        }
        Self(state)
    }

    pub(super) fn bits(&mut self) -> u64 {
        self.0 = step(self.0);
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(super) fn unit(&mut self) -> f64 {
        unit(self.bits())
    }
}

fn step(state: u64) -> u64 {
    let s = state ^ (state << 13);
    let s = s ^ (s >> 7);
    s ^ (s << 17)
}

/// `columns` is a matrix over GF(2): its product with a vector is the exclusive or of the columns the vector
/// selects.
fn times(columns: &[u64; 64], vector: u64) -> u64 {
    columns
        .iter()
        .enumerate()
        .filter(|(bit, _)| vector >> bit & 1 == 1)
        .fold(0, |sum, (_, column)| sum ^ column)
}

/// The permutation `old -> new` that shuffles within windows of `window` consecutive numbers. This gives the
/// bandwidth and locality of an unstructured mesh. A window of 0 or 1 keeps the order.
pub(super) fn shuffled_in_windows(length: usize, window: usize, seed: u64) -> Vec<u32> {
    use rayon::prelude::*;
    let mut order: Vec<u32> = (0..length as u32).collect();
    if window > 1 {
        order.par_chunks_mut(window).enumerate().for_each(|(index, chunk)| {
            let start = (index * window) as u64;
            for i in (1..chunk.len()).rev() {
                let draw = mix(seed.wrapping_add((start + i as u64) * 77));
                chunk.swap(i, (draw % (i as u64 + 1)) as usize);
            }
        });
    }
    order
}

/// Inverts a permutation `old -> new`.
pub(super) fn inverse(order: &[u32]) -> Vec<u32> {
    let mut inverse = vec![0; order.len()];
    for (old, &new) in order.iter().enumerate() {
        inverse[new as usize] = old as u32;
    }
    inverse
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_ahead_lands_where_drawing_does() {
        for draws in [0, 1, 2, 3, 63, 64, 65, 1000] {
            let mut drawn = XorShift::after(0);
            for _ in 0..draws {
                drawn.bits();
            }
            assert_eq!(drawn.0, XorShift::after(draws).0, "{draws} draws");
        }
    }

    #[test]
    fn orderings_are_permutations_that_stay_in_their_window() {
        for (length, window) in [(0, 4), (1, 4), (10, 0), (10, 1), (100, 7), (100, 1000)] {
            let order = shuffled_in_windows(length, window, 42);
            let back = inverse(&order);
            for old in 0..length {
                assert_eq!(back[order[old] as usize] as usize, old);
                let window = window.max(1);
                assert_eq!(order[old] as usize / window, old / window);
            }
        }
        assert_ne!(shuffled_in_windows(100, 50, 1), shuffled_in_windows(100, 50, 2));
    }

    #[test]
    fn units_lie_in_their_interval() {
        assert_eq!(unit(0), 0.0);
        assert!(unit(u64::MAX) < 1.0);
        let mut stream = SplitMix::new(3);
        let mean = (0..10_000).map(|_| stream.unit()).sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
    }
}
