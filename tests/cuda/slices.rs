//! On a GPU, the height of slices and the order of rows depend on row lengths.

use krysp_kernels::cuda::formats::sliced::{Sliced, Widths};
use krysp_kernels::cuda::{Device, Pattern, Product};
use krysp_kernels::index::{Columns, Offsets};

/// Number of consecutive rows among which rows may be sorted.
const WINDOW: usize = 768;

/// Number of groups in all slices, for rows of these lengths. `lanes` lanes share a row, so a slice, which
/// has 32 lanes, has `32 / lanes` rows. A group has `pack` neighbouring slots for each lane.
fn groups(lengths: &[usize], lanes: usize, pack: usize) -> usize {
    let longest = |slice: &[usize]| slice.iter().copied().max().unwrap_or(0);
    lengths.chunks(32 / lanes).map(|slice| longest(slice).div_ceil(lanes * pack)).sum()
}

/// Whether rows should be sorted, and the total number of slots.
fn expected(lengths: &[usize], lanes: usize, pack: usize) -> (bool, usize) {
    let mut by_length = lengths.to_vec();
    by_length.chunks_mut(WINDOW).for_each(|window| window.sort_unstable_by(|a, b| b.cmp(a)));
    let [natural, sorted] = [lengths, &by_length].map(|lengths| groups(lengths, lanes, 1));
    let fewest = lengths.iter().sum::<usize>().div_ceil(32);
    let is_sorted = 10 * natural > 11 * fewest && 10 * natural > 11 * sorted;
    let lengths = if is_sorted { &by_length } else { lengths };
    let [one, all] = [1, pack].map(|pack| groups(lengths, lanes, pack) * pack);
    (is_sorted, 32 * if 25 * all <= 26 * one { all } else { one })
}

gpu_test!(slices_follow_the_lengths_of_rows);
fn slices_follow_the_lengths_of_rows() {
    let device = Device::new(0).unwrap();
    let hashed = |i: usize| (i * 7919 + 13) % 1009;
    let lengths: [(&str, &dyn Fn(usize) -> usize); 7] = [
        ("equal", &|_| 8),
        ("empty", &|_| 0),
        ("rising", &|i| i % 9),
        ("mixed", &|i| hashed(i) % 27),
        ("one long", &|i| if i % 1000 == 500 { 700 } else { 3 }),
        ("long", &|i| 60 + hashed(i) % 60),
        ("few", &|i| usize::from(i % 40 == 7) * 5),
    ];
    let (mut sorted, mut packed) = ([0; 2], [0; 2]);
    for rows in [0, 1, 31, 32, 33, 767, 768, 769, 1600, 200_000] {
        for (name, length) in &lengths {
            let (lengths, cols) = ((0..rows).map(length).collect::<Vec<_>>(), 1000);
            let columns = lengths.iter().enumerate().flat_map(|(i, &length)| {
                let first = hashed(i) % (cols - length + 1);
                first as u32..(first + length) as u32
            });
            let columns = Columns::new(columns.collect::<Vec<_>>(), cols).unwrap();
            let offsets = Offsets::from_lengths(lengths.iter().copied());
            let pattern = Pattern::new(&offsets, &columns);
            let values: Vec<f64> = (0..columns.len()).map(|entry| entry as f64).collect();
            for sort in [false, true] {
                let matrix = Sliced::<f64>::new(&device, pattern, &values, Widths::Each { sort }).unwrap();
                let (saves, slots) = expected(&lengths, matrix.lanes(), 2);
                if sort || !saves {
                    assert_eq!((matrix.is_sorted(), matrix.slots()), (saves, slots), "{rows} {name}");
                }
                assert!(sort || !matrix.is_sorted(), "{rows} {name}");
                sorted[usize::from(matrix.is_sorted())] += 1;
                packed[usize::from(matrix.slots() == 32 * groups(&lengths, matrix.lanes(), 1))] += 1;
                // every entry has a slot
                let mut entries = vec![f64::NAN; values.len()];
                matrix.entries(pattern).unwrap().read(&mut entries).unwrap();
                assert_eq!(entries, values, "{rows} {name}");
            }
        }
    }
    assert!(sorted.into_iter().chain(packed).all(|count| count > 5), "{sorted:?} {packed:?}");
}
