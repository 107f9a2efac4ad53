use super::*;
use crate::formats::Csr;
use crate::ordering::minimum_degree::{Both, is_symmetric};

/// The pattern of a symmetric matrix, with a diagonal.
fn pattern(n: usize, edges: impl Iterator<Item = (u32, u32)>) -> Csr<f64> {
    let mut entries: Vec<(u32, u32, f64)> = (0..n as u32).map(|i| (i, i, 1.0)).collect();
    entries.extend(edges.flat_map(|(i, j)| [(i, j, 1.0), (j, i, 1.0)]));
    Csr::from_triplets(n, n, &entries).unwrap()
}

/// The graph of an `n × n × n` grid, whose nodes have `unknowns` unknowns each. A node has up to 6 neighbours, or
/// up to 26 with `corners`.
fn grid(n: u32, unknowns: u32, corners: bool) -> Csr<f64> {
    let all = || (0..n).flat_map(move |k| (0..n).flat_map(move |j| (0..n).map(move |i| [i, j, k])));
    let at = |[i, j, k]: [u32; 3]| (k * n + j) * n + i;
    let near = |a: [u32; 3], b: [u32; 3]| {
        let steps = [0, 1, 2].map(|d| a[d].abs_diff(b[d]));
        steps.iter().all(|&step| step <= 1) && (corners || steps.iter().sum::<u32>() <= 1)
    };
    let around = |[i, j, k]: [u32; 3]| {
        let range = |at: u32| at.saturating_sub(1)..=at + 1;
        range(k).flat_map(move |k| range(j).flat_map(move |j| range(i).map(move |i| [i, j, k])))
    };
    let mut edges = vec![];
    for a in all() {
        let others = around(a).filter(|&b| b.iter().all(|&at| at < n) && near(a, b) && at(b) >= at(a));
        edges.extend(others.map(|b| (at(a), at(b))));
    }
    let all = edges.into_iter().flat_map(|(v, w)| {
        (0..unknowns).flat_map(move |a| (0..unknowns).map(move |b| (v * unknowns + a, w * unknowns + b)))
    });
    pattern((n * n * n * unknowns) as usize, all.filter(|(i, j)| i != j))
}

fn ordered(a: &Csr<f64>) -> Vec<u32> {
    assert!(is_symmetric([a, a]));
    of_symmetric(a.rows(), a.nnz(), &Both::new([a, a])).unwrap()
}

fn is_permutation(order: &[u32]) -> bool {
    let mut sorted = order.to_vec();
    sorted.sort_unstable();
    sorted.into_iter().eq(0..order.len() as u32)
}

/// Number of entries of the factor.
fn fill(a: &Csr<f64>, order: &[u32]) -> usize {
    let mut place = vec![0; order.len()];
    (0..).zip(order).for_each(|(at, &v)| place[v as usize] = at);
    let mut above: Vec<Vec<u32>> = vec![vec![]; order.len()];
    let mut entries = 0;
    for (at, &v) in order.iter().enumerate() {
        let later = |&other: &u32| other > at as u32;
        let mut column: Vec<u32> =
            a.row_columns(v as usize).iter().map(|&j| place[j as usize]).filter(later).collect();
        column.append(&mut above[at]);
        column.retain(later);
        column.sort_unstable();
        column.dedup();
        entries += 1 + column.len();
        if let Some(&parent) = column.first() {
            above[parent as usize].extend(column);
        }
    }
    entries
}

#[test]
fn factors_of_a_cube_have_fewer_entries_than_by_minimum_degree() {
    let a = grid(14, 1, true);
    let order = ordered(&a);
    assert!(is_permutation(&order));
    let by_degree = minimum_degree::of_sum(&a, &a).unwrap();
    let (dissected, by_degree) = (fill(&a, &order), fill(&a, &by_degree));
    assert!((dissected as f64) < 0.97 * by_degree as f64, "{dissected} and {by_degree}");
}

#[test]
fn unknowns_of_a_node_are_eliminated_together() {
    let a = grid(8, 3, false);
    let order = ordered(&a);
    assert!(is_permutation(&order));
    assert!(order.chunks(3).all(|node| node.iter().all(|&v| v / 3 == node[0] / 3)));
}

#[test]
fn parts_are_not_connected() {
    let a = grid(12, 1, false);
    let graph = Merged::new(a.rows(), a.nnz(), &Both::new([&a, &a])).graph;
    assert_eq!(graph.len(), a.rows());
    let parts = graph.separated(&Phase::new("test", 0.0)).unwrap();
    let count = |part| parts.iter().filter(|&&own| own == part).count();
    for v in 0..graph.len() {
        assert!(
            graph
                .edges(v)
                .iter()
                .all(|&(to, _)| parts[v] == SEPARATOR || [parts[v], SEPARATOR].contains(&parts[to as usize]))
        );
    }
    // a plane has 144 vertices
    assert!(
        count(SEPARATOR) <= 160 && count(0).min(count(1)) >= 600,
        "{} {} {}",
        count(0),
        count(1),
        count(SEPARATOR)
    );
}

#[test]
fn all_shapes_of_graphs_are_ordered() {
    let star = pattern(2000, (1..2000).map(|v| (0, v)));
    let path = pattern(2000, (1..2000).map(|v| (v - 1, v)));
    let pieces = pattern(3000, (0..3000).filter(|v| v % 3 != 2).map(|v| (v, v + 1)));
    let complete = pattern(300, (0..300).flat_map(|v| (0..v).map(move |w| (v, w))));
    for a in [
        star,
        path,
        pieces,
        complete,
        pattern(1000, std::iter::empty()),
        pattern(1, std::iter::empty()),
        pattern(0, std::iter::empty()),
    ] {
        let order = ordered(&a);
        assert!(is_permutation(&order) && order.len() == a.rows());
    }
}

#[test]
fn the_order_does_not_depend_on_the_number_of_threads() {
    // several parts of the graph are built in parallel
    for a in [grid(22, 1, true), grid(12, 3, true)] {
        assert!(weighted_graph::by_edges(a.nnz()) > 4);
        let with = |threads| {
            rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| ordered(&a))
        };
        let alone = with(1);
        assert!([2, 3, 7].into_iter().all(|threads| with(threads) == alone));
    }
}

#[test]
fn vertices_with_many_neighbours_do_not_prevent_a_separation() {
    // two hubs, each joined to all vertices of a path
    let n = 6000;
    let hubs = (2..n).flat_map(|v| [(0, v), (1, v)]);
    let a = pattern(n as usize, hubs.chain((3..n).map(|v| (v - 1, v))));
    let graph = Merged::new(a.rows(), a.nnz(), &Both::new([&a, &a])).graph;
    let parts = graph.separated(&Phase::new("test", 0.0)).unwrap();
    let count = |part| parts.iter().filter(|&&own| own == part).count();
    assert!(
        count(0) > 2000 && count(1) > 2000 && count(SEPARATOR) < 200,
        "{} {} {}",
        count(0),
        count(1),
        count(SEPARATOR)
    );
}

#[test]
fn refined_separators_have_the_cost_that_is_returned() {
    let a = grid(9, 1, true);
    let graph = Merged::new(a.rows(), a.nnz(), &Both::new([&a, &a])).graph;
    // a separator of two layers, off the middle
    let mut parts: Vec<u8> = (0..729)
        .map(|v| match v / 81 {
            0..3 => 0,
            3..5 => SEPARATOR,
            _ => 1,
        })
        .collect();
    let cost = Refinement::new(&graph, &mut parts).run();
    let weight = |part| parts.iter().filter(|&&own| own == part).count() as f64;
    assert_eq!(cost, weight(SEPARATOR) / (weight(0) * weight(1)).sqrt());
    assert!(weight(SEPARATOR) <= 81.0);
}
