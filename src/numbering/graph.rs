//! Graphs that are clustered: the pattern of a matrix, and what its clusters make of it.

use krysp_kernels::index::{Offsets, OffsetsRef};

/// Vertices and their neighbours.
pub(super) trait Graph: Sync {
    /// The number of vertices.
    fn vertices(&self) -> usize;

    /// The ends of all edges.
    fn ends(&self) -> usize;

    /// How many unknowns a vertex stands for.
    fn weight(&self, vertex: u32) -> u32;

    /// The neighbours of a vertex, perhaps itself among them.
    fn neighbours(&self, vertex: u32) -> &[u32];

    /// How many entries tie a vertex to its neighbours.
    fn strengths(&self, vertex: u32) -> impl Iterator<Item = u32>;

    /// The neighbours of a vertex, itself left out, and how many entries tie it to each.
    #[inline]
    fn edges(&self, vertex: u32) -> impl Iterator<Item = (u32, u32)> {
        let all = self.neighbours(vertex).iter().copied().zip(self.strengths(vertex));
        all.filter(move |&(other, _)| other != vertex)
    }

    /// `visit(label(neighbour), strength)` for every neighbour, itself left out. Labels of several neighbours are read
    /// before any is visited, so that they need not wait for each other.
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

/// The pattern of a matrix, taken as symmetric.
///
/// Rows much longer than others say nothing about neighbourhoods, yet would make all rows neighbours: they are taken as
/// empty.
#[derive(Clone, Copy)]
pub(super) struct Pattern<'a> {
    offsets: OffsetsRef<'a>,
    columns: &'a [u32],
    longest: usize,
}

/// Rows up to this length, and up to so many times the mean, have neighbours.
const LONGEST: usize = 512;
const LONGEST_BY_MEAN: usize = 8;

impl<'a> Pattern<'a> {
    pub(super) fn new(offsets: impl Into<OffsetsRef<'a>>, columns: &'a [u32]) -> Pattern<'a> {
        let offsets = offsets.into();
        let mean = columns.len() / offsets.ranges().max(1);
        Pattern { offsets, columns, longest: LONGEST.max(LONGEST_BY_MEAN * mean) }
    }

    /// The length up to which rows have neighbours.
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

/// A graph whose vertices are clusters of another's.
pub(super) struct Coarse {
    pub(super) offsets: Offsets,
    pub(super) neighbours: Vec<u32>,
    /// The edges of the finer graph that lead there.
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
