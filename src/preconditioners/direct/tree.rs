//! Symbolic factorization of a symmetric pattern: elimination tree, column counts of the factor, and fronts.
//!
//! A column of the factor has the entries of the matrix below the diagonal, and those of its children in the
//! elimination tree (Liu 1990). Consecutive columns with the same entries below them form a *front*
//! (supernode), which is factorized as a dense matrix. Small fronts are merged where that stores few zeros.

mod fits;
mod parallel;
mod solves;

pub(super) use solves::{Solve, Units, Workspace};

use super::Budget;
use crate::error::Result;
use crate::ordering::minimum_degree::postorder;
pub(super) use crate::ordering::minimum_degree::{Both, Neighbours};
use crate::saved::saved;
use krysp_kernels::interrupt::Phase;
use std::ops::Range;

pub(super) const NONE: u32 = u32::MAX;

/// Two fronts are merged if, for one of these pairs, the merged front has at most so many columns, and at
/// most this fraction of its entries are zeros (the defaults of CHOLMOD).
const JOINED: [(usize, f64); 4] = [(4, 1.0), (16, 0.8), (48, 0.1), (usize::MAX, 0.05)];

/// Maximum work of a task (one or more subtrees), as a fraction of the total.
const TASK: f64 = 1.0 / 64.0;

/// Total work, as `Tree::share` computes it, up to which all fronts form one task: about 0.1 ms, the time to
/// start threads. A guess; it is too large if small systems become faster when it is divided by ten.
const ALONE: f64 = 2e5;

/// Number of tasks that are assumed to run concurrently when memory is estimated. It does not depend on the
/// number of threads, so that a memory limit refuses the same matrices on every machine. A guess;
/// factorizations with delayed pivots also check the memory in use.
const AT_A_TIME: usize = 4;

/// Assembly tree: fronts, children before their parents, and the elimination order.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    /// Variable that is eliminated at each position.
    pub(super) order: Vec<u32>,
    /// Position of each variable in `order`.
    pub(super) place: Vec<u32>,
    pub(super) fronts: Vec<Front>,
    /// Positions of the rows below the columns of each front, front after front.
    rows: Vec<u32>,
    /// Tasks: ranges of fronts that form independent subtrees, all with the same parent. `top` lists the fronts
    /// above them.
    pub(super) tasks: Vec<Range<usize>>,
    pub(super) top: Vec<usize>,
}

saved!(impl[] Tree { order, place, fronts, rows, tasks, top });

/// Columns that are eliminated together, as a dense matrix.
#[derive(Clone, Debug)]
pub(super) struct Front {
    pub(super) columns: Range<usize>,
    /// Its ranges in the rows of the tree and in the array of values (`numbers`): for each column, one value
    /// for each row of the front.
    rows: Range<usize>,
    pub(super) numbers: Range<usize>,
    pub(super) parent: Option<u32>,
}

saved!(impl[] Front { columns, rows, numbers, parent });

impl Front {
    /// Number of rows: those of its columns, and those below.
    pub(super) fn height(&self) -> usize {
        self.columns.len() + self.rows.len()
    }

    pub(super) fn below(&self) -> usize {
        self.rows.len()
    }

    /// Number of multiplications for a symmetric matrix: for each column, half the square of its number of
    /// rows from the diagonal on.
    pub(super) fn work(&self) -> f64 {
        work(self.height(), self.below())
    }
}

/// Number of multiplications for a front of a symmetric matrix, given its numbers of rows and of rows below its pivots.
pub(super) fn work(height: usize, below: usize) -> f64 {
    let cubes = |rows: f64| rows * (rows + 1.0) * (2.0 * rows + 1.0) / 12.0;
    cubes(height as f64) - cubes(below as f64)
}

impl Tree {
    /// Builds the fronts. Returns an error if the memory limit would be exceeded: `stored` bytes for each
    /// value of a front, and `waiting` bytes for each value of a Schur complement that waits for its parent
    /// front.
    pub(super) fn new(
        expected: Expected,
        neighbours: &impl Neighbours,
        [stored, waiting]: [usize; 2],
        budget: Budget,
    ) -> Result<Tree> {
        let Expected { order, place, parents, lengths } = expected;
        let n = order.len();
        let starts = joined(&parents, &lengths);
        let numbers = |bounds: &[usize]| {
            let height = (bounds[1] - bounds[0]) as u128 - 1 + u128::from(lengths[bounds[1] - 1]);
            (bounds[1] - bounds[0]) as u128 * height
        };
        let entries: u128 = starts.windows(2).map(numbers).sum();
        let needed = entries.saturating_mul(stored as u128).min(usize::MAX as u128) as usize;
        budget.allows(needed)?;
        let mut tree = Tree { order, place, fronts: vec![], rows: vec![], tasks: vec![], top: vec![] };
        tree.fill(&starts, &parents, neighbours, n)?;
        budget.allows_work(tree.work())?;
        tree.share();
        budget.allows(needed.saturating_add(tree.waiting().saturating_mul(waiting)))?;
        Ok(tree)
    }

    /// Positions of the rows below the columns of a front.
    pub(super) fn rows(&self, front: &Front) -> &[u32] {
        &self.rows[front.rows.clone()]
    }

    /// Number of stored values of all fronts.
    pub(super) fn numbers(&self) -> usize {
        self.fronts.last().map_or(0, |front| front.numbers.end)
    }

    /// Number of entries of the lower triangle.
    pub(super) fn entries(&self) -> usize {
        let own = |front: &Front| front.columns.len() * (front.columns.len() + 1) / 2;
        self.fronts.iter().map(|front| own(front) + front.columns.len() * front.below()).sum()
    }

    /// Number of fronts.
    pub(super) fn count(&self) -> usize {
        self.fronts.len()
    }

    /// Number of multiplications for a symmetric matrix.
    pub(super) fn work(&self) -> f64 {
        self.fronts.iter().map(Front::work).sum()
    }

    /// Lists of children: `first[front]` is the first child, `next[child]` the next one, in ascending order.
    pub(super) fn children(&self) -> (Vec<u32>, Vec<u32>) {
        let (mut first, mut next) = (vec![NONE; self.fronts.len()], vec![NONE; self.fronts.len()]);
        for (at, front) in self.fronts.iter().enumerate().rev() {
            if let Some(parent) = front.parent {
                next[at] = std::mem::replace(&mut first[parent as usize], at as u32);
            }
        }
        (first, next)
    }

    /// The tasks, then each front above them by itself.
    pub(super) fn steps(&self) -> Vec<Range<usize>> {
        self.tasks.iter().cloned().chain(self.top.iter().map(|&front| front..front + 1)).collect()
    }

    /// The steps, children before parents.
    pub(super) fn units(&self) -> Vec<Range<usize>> {
        let mut units = self.steps();
        units.sort_unstable_by_key(|unit| unit.start);
        units
    }

    /// Computes the rows of each front: those in which its columns have entries, and those that its children
    /// have below their columns.
    fn fill(
        &mut self,
        starts: &[usize],
        parents: &[u32],
        neighbours: &impl Neighbours,
        n: usize,
    ) -> Result<()> {
        let mut front_of = vec![0u32; n];
        for (front, bounds) in starts.windows(2).enumerate() {
            front_of[bounds[0]..bounds[1]].fill(front as u32);
        }
        let count = starts.len() - 1;
        let (mut first, mut next) = (vec![NONE; count], vec![NONE; count]);
        let (mut seen, mut numbers) = (vec![NONE; n], 0);
        let phase = Phase::new("rows of the factor", n as f64);
        let mut counter = phase.counter();
        for (at, bounds) in starts.windows(2).enumerate() {
            let columns = bounds[0]..bounds[1];
            let from = self.rows.len();
            let mut add = |row: u32, rows: &mut Vec<u32>| {
                if row as usize >= columns.end && seen[row as usize] != at as u32 {
                    seen[row as usize] = at as u32;
                    rows.push(row);
                }
            };
            for column in columns.clone() {
                for other in neighbours.of(self.order[column]) {
                    add(self.place[other as usize], &mut self.rows);
                    counter.add(1)?;
                }
            }
            let mut child = first[at];
            while child != NONE {
                counter.add(self.fronts[child as usize].rows.len())?;
                for entry in self.fronts[child as usize].rows.clone() {
                    let row = self.rows[entry];
                    add(row, &mut self.rows);
                }
                child = next[child as usize];
            }
            self.rows[from..].sort_unstable();
            let rows = from..self.rows.len();
            let parent = match parents[columns.end - 1] {
                NONE => None,
                parent => Some(front_of[parent as usize]),
            };
            if let Some(parent) = parent {
                next[at] = std::mem::replace(&mut first[parent as usize], at as u32);
            }
            let size = columns.len() * (columns.len() + rows.len());
            self.fronts.push(Front { columns, rows, numbers: numbers..numbers + size, parent });
            numbers += size;
        }
        Ok(())
    }

    /// Splits off subtrees with little work as tasks. They depend on the tree alone, not on the number of
    /// threads.
    fn share(&mut self) {
        let work = |front: &Front| {
            let [columns, height] = [front.columns.len(), front.height()].map(|count| count as f64);
            columns * height * height
        };
        let mut below: Vec<f64> = self.fronts.iter().map(work).collect();
        let mut starts: Vec<usize> = (0..self.fronts.len()).collect();
        for at in 0..self.fronts.len() {
            if let Some(parent) = self.fronts[at].parent {
                let parent = parent as usize;
                below[parent] += below[at];
                starts[parent] = starts[parent].min(starts[at]);
            }
        }
        let whole: f64 = self.fronts.iter().map(work).sum();
        if whole <= ALONE {
            self.tasks.extend((!self.fronts.is_empty()).then_some(0..self.fronts.len()));
            return;
        }
        let small: Vec<bool> = below.iter().map(|&work| work <= TASK * whole).collect();
        for (at, front) in self.fronts.iter().enumerate() {
            if !small[at] {
                self.top.push(at);
            } else if front.parent.is_none_or(|parent| !small[parent as usize]) {
                match self.tasks.last_mut() {
                    // adjacent subtrees of one parent form one task while their total work is small
                    Some(last)
                        if last.end == starts[at]
                            && self.fronts[last.end - 1].parent == front.parent
                            && below[last.end - 1] + below[at] <= TASK * whole =>
                    {
                        last.end = at + 1;
                        below[at] += below[starts[at] - 1];
                    }
                    _ => self.tasks.push(starts[at]..at + 1),
                }
            }
        }
    }

    /// Upper bound on the number of values that wait for parent fronts at any time, in any order in which the
    /// units may run: those of completed subtrees, and those within `AT_A_TIME` running tasks.
    fn waiting(&self) -> usize {
        let (first, next) = self.children();
        let of_children = |at: usize, sizes: &[usize]| -> usize {
            let next = |&child: &u32| Some(next[child as usize]).filter(|&next| next != NONE);
            let children = std::iter::successors(Some(first[at]).filter(|&first| first != NONE), next);
            children.map(|child| sizes[child as usize]).sum()
        };
        let sizes: Vec<usize> = self.fronts.iter().map(|front| front.below() * front.below()).collect();
        let mut most = 0;
        for task in &self.tasks {
            let mut now = 0;
            for at in task.clone() {
                now += sizes[at];
                most = most.max(now);
                now -= of_children(at, &sizes);
            }
        }
        // for each subtree: either parts of it wait, or its last front is being eliminated, or waits
        let mut waiting = sizes.clone();
        for &at in &self.top {
            waiting[at] = of_children(at, &waiting).max(sizes[at] + of_children(at, &sizes));
        }
        let roots = self.fronts.iter().zip(&waiting).filter(|(front, _)| front.parent.is_none());
        roots.map(|(_, waiting)| waiting).sum::<usize>() + AT_A_TIME.min(self.tasks.len()) * most
    }
}

/// Elimination tree and column counts for an ordering. `parents` holds the parent of each column.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    /// The given ordering, in a postorder of the elimination tree: the fill-in is the same, and subtrees are
    /// contiguous.
    pub(super) order: Vec<u32>,
    place: Vec<u32>,
    parents: Vec<u32>,
    /// Number of entries of each column of the factor, including the diagonal.
    pub(super) lengths: Vec<u32>,
}

impl Expected {
    pub(super) fn new(order: Vec<u32>, neighbours: &impl Neighbours) -> Result<Expected> {
        let place = inverse(&order);
        let parents = parents(&order, &place, neighbours)?;
        let after = postorder(&parents);
        let order: Vec<u32> = after.iter().map(|&at| order[at as usize]).collect();
        let (place, at) = (inverse(&order), inverse(&after));
        let up = |parent: u32| if parent == NONE { NONE } else { at[parent as usize] };
        let parents: Vec<u32> = after.iter().map(|&old| up(parents[old as usize])).collect();
        let lengths = lengths(&order, &place, &parents, neighbours)?;
        Ok(Expected { order, place, parents, lengths })
    }

    /// Number of entries of one factor, and the sum of the squares of the lengths of its columns, as in
    /// [`minimum_degree::Ordered`](crate::ordering::minimum_degree::Ordered).
    pub(super) fn work(&self) -> [f64; 2] {
        let lengths = self.lengths.iter().map(|&length| f64::from(length));
        lengths.fold([0.0; 2], |[entries, work], length| [entries + length, work + length * length])
    }
}

/// Position of each variable in an ordering.
pub(super) fn inverse(order: &[u32]) -> Vec<u32> {
    let mut place = vec![0; order.len()];
    (0..).zip(order).for_each(|(at, &of)| place[of as usize] = at);
    place
}

fn parents(order: &[u32], place: &[u32], neighbours: &impl Neighbours) -> Result<Vec<u32>> {
    let phase = Phase::new("elimination tree", order.len() as f64);
    let mut counter = phase.counter();
    let mut parents = vec![NONE; order.len()];
    let mut above = parents.clone();
    for (at, &variable) in (0..).zip(order) {
        for other in neighbours.of(variable) {
            let mut from = place[other as usize];
            counter.add(1)?;
            while from != NONE && from < at {
                let next = std::mem::replace(&mut above[from as usize], at);
                if next == NONE {
                    parents[from as usize] = at;
                }
                from = next;
            }
        }
    }
    Ok(parents)
}

/// Column counts for a postordered tree (Gilbert, Ng and Peyton 1994).
fn lengths(order: &[u32], place: &[u32], parents: &[u32], neighbours: &impl Neighbours) -> Result<Vec<u32>> {
    let phase = Phase::new("lengths of the factor's columns", order.len() as f64);
    let mut counter = phase.counter();
    let n = order.len();
    let mut first = vec![NONE; n];
    for column in 0..n {
        let mut at = column;
        while first[at] == NONE {
            first[at] = column as u32;
            match parents[at] {
                NONE => break,
                parent => at = parent as usize,
            }
        }
    }
    let mut lengths: Vec<i64> = (0..n).map(|column| i64::from(first[column] == column as u32)).collect();
    let (mut latest, mut last_leaf) = (vec![0u32; n], vec![NONE; n]);
    let mut above: Vec<u32> = (0..n as u32).collect();
    for column in 0..n {
        if parents[column] != NONE {
            lengths[parents[column] as usize] -= 1;
        }
        for other in neighbours.of(order[column]) {
            counter.add(1)?;
            let row = place[other as usize] as usize;
            // the column is a leaf of the subtree of the row if no descendant of the column has an entry in
            // the row
            if row <= column || latest[row] > first[column] {
                continue;
            }
            latest[row] = first[column] + 1;
            lengths[column] += 1;
            let before = std::mem::replace(&mut last_leaf[row], column as u32);
            if before != NONE {
                let mut common = before;
                while above[common as usize] != common {
                    common = above[common as usize];
                }
                let mut at = before;
                while at != common {
                    at = std::mem::replace(&mut above[at as usize], common);
                }
                lengths[common as usize] -= 1;
            }
        }
        if parents[column] != NONE {
            above[column] = parents[column];
        }
    }
    for column in 0..n {
        if parents[column] != NONE {
            lengths[parents[column] as usize] += lengths[column];
        }
    }
    Ok(lengths.into_iter().map(|length| length.max(1) as u32).collect())
}

/// Merges columns to fronts. Returns the first column of each front, then the number of columns.
fn joined(parents: &[u32], lengths: &[u32]) -> Vec<usize> {
    let n = parents.len();
    // first column and number of nonzero entries of each front
    let mut fronts: Vec<(usize, f64)> = vec![];
    let mut column = 0;
    while column < n {
        let start = column;
        let mut entries = f64::from(lengths[column]);
        while column + 1 < n
            && parents[column] as usize == column + 1
            && lengths[column + 1] + 1 == lengths[column]
        {
            column += 1;
            entries += f64::from(lengths[column]);
        }
        column += 1;
        let mut front = (start, entries);
        while let Some(&(first, others)) = fronts.last() {
            let parent = parents[front.0 - 1] as usize;
            if parent < front.0 || parent >= column {
                break;
            }
            let columns = column - first;
            let height = (columns - 1) as f64 + f64::from(lengths[column - 1]);
            let all = columns as f64 * height - (columns * (columns - 1)) as f64 / 2.0;
            let zeros = 1.0 - (front.1 + others) / all;
            if !JOINED.iter().any(|&(most, share)| columns <= most && zeros <= share) {
                break;
            }
            fronts.pop();
            front = (first, front.1 + others);
        }
        fronts.push(front);
    }
    fronts.iter().map(|front| front.0).chain([n]).collect()
}
