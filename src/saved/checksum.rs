//! A checksum of bytes, computed by all threads. It detects any change within one 64-bit word for certain,
//! and other changes with a probability of 1 − 2⁻⁶⁴.
//!
//! Every step is a bijection of the state for a given word, and of the word for a given state. So if two
//! inputs differ in one word, their states differ from that word on.

use krysp_kernels::cpu::run::threads::map_rows;

/// Number of bytes that one thread processes at a time. Guess, chosen as about 0.1 ms of work.
const BLOCK: usize = 1 << 20;

/// Number of independent chains of multiplications. In a chain each multiplication depends on the one before; several
/// chains hide the latency. Guess; a multiplication has a latency of three to five cycles.
const CHAINS: usize = 8;

const WORD: usize = size_of::<u64>();

/// 2⁶⁴ divided by the golden ratio: odd, with irregular bits.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the state after processing `word`.
#[inline(always)]
pub(crate) fn step(state: u64, word: u64) -> u64 {
    let product = (state ^ word).wrapping_mul(FACTOR);
    product ^ (product >> 32)
}

/// Computes the checksum of `bytes`.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    let blocks = bytes.len().div_ceil(BLOCK);
    let block = |at: usize| of_block(&bytes[at * BLOCK..bytes.len().min((at + 1) * BLOCK)]);
    let sums: Vec<u64> = map_rows(blocks, BLOCK / WORD, &block);
    sums.into_iter().fold(step(FACTOR, bytes.len() as u64), step)
}

/// Combines several checksums.
pub(crate) fn joined(sums: &[u64]) -> u64 {
    sums.iter().copied().fold(step(FACTOR, sums.len() as u64), step)
}

fn of_block(bytes: &[u8]) -> u64 {
    let mut chains: [u64; CHAINS] = std::array::from_fn(|chain| chain as u64);
    let (groups, rest) = bytes.as_chunks::<{ CHAINS * WORD }>();
    for group in groups {
        for (chain, word) in chains.iter_mut().zip(group.as_chunks().0) {
            *chain = step(*chain, u64::from_le_bytes(*word));
        }
    }
    let words = rest.chunks(WORD).map(|word| {
        let mut whole = [0; WORD];
        whole[..word.len()].copy_from_slice(word);
        u64::from_le_bytes(whole)
    });
    words.fold(joined(&chains), step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_and_every_length_shows() {
        let bytes: Vec<u8> = (0..300u32).map(|k| (k * k % 251) as u8).collect();
        let whole = checksum(&bytes);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                assert_ne!(checksum(&flipped), whole, "byte {at}, bit {bit}");
            }
            assert_ne!(checksum(&bytes[..at]), whole, "{at} bytes");
        }
        // zeros that pad the last word differ from zeros in the input
        assert_ne!(checksum(&[0; 8]), checksum(&[0; 7]));
    }

    #[test]
    fn blocks_are_in_order_for_any_number_of_threads() {
        let mut bytes: Vec<u8> = (0..3 * BLOCK + 77).map(|k| (k % 253) as u8).collect();
        let of_all = checksum(&bytes);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(5).build().unwrap();
        assert_eq!(pool.install(|| checksum(&bytes)), of_all);
        let (first, rest) = bytes.split_at_mut(BLOCK);
        first.swap_with_slice(&mut rest[..BLOCK]);
        assert_ne!(checksum(&bytes), of_all);
    }
}
