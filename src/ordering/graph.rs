//! Graphs that the orderings work on: the pattern of a matrix, and graphs of clusters.

use krysp_kernels::index::{Offsets, OffsetsRef};

/// A graph with weighted vertices and edges.
pub(super) trait Graph: Sync {
    /// Number of vertices.
    fn vertices(&self) -> usize;

    /// Total length of all lists of neighbours.
    fn ends(&self) -> usize;

    /// Number of vertices of the finest graph that this vertex represents.
    fn weight(&self, vertex: u32) -> u32;

    /// The neighbours of a vertex. The vertex itself may be among them.
    fn neighbours(&self, vertex: u32) -> &[u32];

    /// For each neighbour, the number of matrix entries that connect it with the vertex.
    fn strengths(&self, vertex: u32) -> impl Iterator<Item = u32>;

    /// The neighbours of a vertex without the vertex itself, each with the number of matrix entries that
    /// connect it.
    #[inline]
    fn edges(&self, vertex: u32) -> impl Iterator<Item = (u32, u32)> {
        let all = self.neighbours(vertex).iter().copied().zip(self.strengths(vertex));
        all.filter(move |&(other, _)| other != vertex)
    }

    /// Calls `visit(label(neighbour), strength)` for every neighbour except the vertex itself. The labels of
    /// `AHEAD` neighbours are read before the first of them is visited, so that the loads overlap.
    #[inline]
    fn look_up(&self, vertex: u32, label: impl Fn(u32) -> u32, mut visit: impl FnMut(u32, u32)) {
        const AHEAD: usize = 16;
        let mut strengths = self.strengths(vertex);
        for neighbours in self.neighbours(vertex).chunks(AHEAD) {
            let mut found = [0; AHEAD];
            for (found, &other) in found.iter_mut().zip(neighbours) {
                *found = label(other);
            }
            for ((&found, &other), strength) in found.iter().zip(neighbours).zip(&mut strengths) {
                if other != vertex {
                    visit(found, strength);
                }
            }
        }
    }
}

/// The pattern of a matrix, which is taken to be symmetric.
///
/// Rows much longer than others are treated as empty, because they would make almost all vertices neighbours
/// of one vertex.
#[derive(Clone, Copy)]
pub(super) struct Pattern<'a> {
    offsets: OffsetsRef<'a>,
    columns: &'a [u32],
    longest: usize,
}

/// A row with more entries than both `LONGEST` and `LONGEST_BY_MEAN` times the mean is treated as empty. Guess,
/// chosen so that meshes have no such row.
const LONGEST: usize = 512;
const LONGEST_BY_MEAN: usize = 8;

impl<'a> Pattern<'a> {
    pub(super) fn new(offsets: impl Into<OffsetsRef<'a>>, columns: &'a [u32]) -> Pattern<'a> {
        let offsets = offsets.into();
        let mean = columns.len() / offsets.ranges().max(1);
        Pattern { offsets, columns, longest: LONGEST.max(LONGEST_BY_MEAN * mean) }
    }

    /// Maximum number of entries of a row that is not treated as empty.
    #[cfg(feature = "cuda")]
    pub(super) fn longest(&self) -> usize {
        self.longest
    }
}

impl Graph for Pattern<'_> {
    fn vertices(&self) -> usize {
        self.offsets.ranges()
    }

    fn ends(&self) -> usize {
        self.columns.len()
    }

    fn weight(&self, _: u32) -> u32 {
        1
    }

    #[inline]
    fn neighbours(&self, vertex: u32) -> &[u32] {
        let range = self.offsets.range(vertex as usize);
        if range.len() > self.longest { &[] } else { &self.columns[range] }
    }

    #[inline]
    fn strengths(&self, _: u32) -> impl Iterator<Item = u32> {
        std::iter::repeat(1)
    }
}

/// A graph whose vertices are clusters of a finer graph.
pub(super) struct Coarse {
    pub(super) offsets: Offsets,
    pub(super) neighbours: Vec<u32>,
    /// For each neighbour, the number of matrix entries that connect both clusters.
    pub(super) strengths: Vec<u32>,
    pub(super) weights: Vec<u32>,
}

impl Graph for Coarse {
    fn vertices(&self) -> usize {
        self.weights.len()
    }

    fn ends(&self) -> usize {
        self.neighbours.len()
    }

    fn weight(&self, vertex: u32) -> u32 {
        self.weights[vertex as usize]
    }

    #[inline]
    fn neighbours(&self, vertex: u32) -> &[u32] {
        &self.neighbours[self.offsets.range(vertex as usize)]
    }

    #[inline]
    fn strengths(&self, vertex: u32) -> impl Iterator<Item = u32> {
        self.strengths[self.offsets.range(vertex as usize)].iter().copied()
    }
}
