//! What elimination makes of a symmetric pattern, before a number is computed: its tree, the lengths of columns, and the fronts.
//!
//! Column `k` of the factor has an entry wherever a column below it in the tree has one beyond `k` (Liu 1990). Neighbouring columns
//! with the same entries form a *front*: a dense block of numbers, which is what makes factorising fast. A few zeros are taken in
//! where that joins small fronts.

mod fits;

use super::Budget;
use crate::Result;
pub(super) use crate::ordering::minimum_degree::{Both, Neighbours};
use crate::saved::saved;
use krysp_kernels::interrupt::Phase;

pub(super) const NONE: u32 = u32::MAX;

/// Two fronts are joined if so few columns are in both, or so small a share of the joint front would be zeros.
const JOINED: [(usize, f64); 4] = [(4, 1.0), (16, 0.8), (48, 0.1), (usize::MAX, 0.05)];

/// The share of all work below which a subtree is a separate task.
const TASK: f64 = 1.0 / 64.0;

/// Multiplications in fronts, bounded as `Tree::share` does, below which all are one task: about 0.1 ms, as long as it takes to start
/// threads. A guess; small systems that become faster when it is divided by ten would show that it is too large.
const ALONE: f64 = 2e5;

/// Tasks that are expected to be computed at a time, for the memory that they need: the same for any number of threads, so that a
/// limit refuses the same matrices. A guess; factorizations with delayed pivots count what more threads take.
const AT_A_TIME: usize = 4;

/// A tree of fronts, children before their parents, and the order of elimination that it stands for.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    /// The variable that is eliminated at each place.
    pub(super) order: Vec<u32>,
    /// The place of each variable.
    pub(super) place: Vec<u32>,
    pub(super) fronts: Vec<Front>,
    /// Rows below the columns of each front, front after front.
    rows: Vec<u32>,
    /// The fronts of subtrees that do not wait for each other, and those above them.
    pub(super) tasks: Vec<std::ops::Range<usize>>,
    pub(super) top: Vec<usize>,
}

saved!(impl[] Tree { order, place, fronts, rows, tasks, top });

/// Columns that are eliminated together.
#[derive(Clone, Debug)]
pub(super) struct Front {
    pub(super) columns: std::ops::Range<usize>,
    /// Where its rows stand, and where its numbers do: as many columns, each with a row for each column and for each row below.
    rows: std::ops::Range<usize>,
    pub(super) numbers: std::ops::Range<usize>,
    pub(super) parent: Option<u32>,
}

saved!(impl[] Front { columns, rows, numbers, parent });

impl Front {
    /// Rows of a column.
    pub(super) fn height(&self) -> usize {
        self.columns.len() + self.rows.len()
    }

    pub(super) fn below(&self) -> usize {
        self.rows.len()
    }

    /// The multiplications that eliminate the columns of a symmetric matrix: half the square of the rows below each.
    pub(super) fn work(&self) -> f64 {
        let cubes = |rows: f64| rows * (rows + 1.0) * (2.0 * rows + 1.0) / 12.0;
        cubes(self.height() as f64) - cubes(self.below() as f64)
    }
}

impl Tree {
    /// For an order with little fill. Refuses what would not fit: bytes for each number of a front, and for each that waits for a
    /// parent.
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
        tree.share();
        budget.allows(needed.saturating_add(tree.waiting().saturating_mul(waiting)))?;
        Ok(tree)
    }

    /// Rows below the columns of a front.
    pub(super) fn rows(&self, front: &Front) -> &[u32] {
        &self.rows[front.rows.clone()]
    }

    /// All numbers of all fronts.
    pub(super) fn numbers(&self) -> usize {
        self.fronts.last().map_or(0, |front| front.numbers.end)
    }

    /// The entries of the lower triangle.
    pub(super) fn entries(&self) -> usize {
        let own = |front: &Front| front.columns.len() * (front.columns.len() + 1) / 2;
        self.fronts.iter().map(|front| own(front) + front.columns.len() * front.below()).sum()
    }

    /// How many fronts there are.
    pub(super) fn count(&self) -> usize {
        self.fronts.len()
    }

    /// The multiplications that eliminate all columns of a symmetric matrix.
    pub(super) fn work(&self) -> f64 {
        self.fronts.iter().map(Front::work).sum()
    }

    /// The children of each front: `first[front]`, then `next[child]`, in the order of fronts.
    pub(super) fn children(&self) -> (Vec<u32>, Vec<u32>) {
        let (mut first, mut next) = (vec![NONE; self.fronts.len()], vec![NONE; self.fronts.len()]);
        for (at, front) in self.fronts.iter().enumerate().rev() {
            if let Some(parent) = front.parent {
                next[at] = std::mem::replace(&mut first[parent as usize], at as u32);
            }
        }
        (first, next)
    }

    /// The rows of each front: those of its columns, and those that its children leave.
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

    /// Cuts off subtrees that are small beside the whole. What they are follows from the tree alone.
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
                    // small trees side by side are one task as long as they are small together
                    Some(last)
                        if last.end == starts[at] && below[last.end - 1] + below[at] <= TASK * whole =>
                    {
                        last.end = at + 1;
                        below[at] += below[starts[at] - 1];
                    }
                    _ => self.tasks.push(starts[at]..at + 1),
                }
            }
        }
    }

    /// The most numbers that wait for their parents at a time, to an upper bound: those of all tasks done, and of the tasks in hand.
    fn waiting(&self) -> usize {
        let size = |at: usize| self.fronts[at].below() * self.fronts[at].below();
        let (first, next) = self.children();
        let of_children = |at: usize| {
            let (mut sum, mut child) = (0, first[at]);
            while child != NONE {
                sum += size(child as usize);
                child = next[child as usize];
            }
            sum
        };
        let (mut left, mut most) = (0, 0);
        for task in &self.tasks {
            let (mut now, mut peak) = (0, 0);
            for at in task.clone() {
                now += size(at);
                peak = peak.max(now);
                now -= of_children(at);
            }
            left += now;
            most = most.max(peak);
        }
        let (mut now, mut peak) = (left, left + AT_A_TIME.min(self.tasks.len()) * most);
        for &at in &self.top {
            now += size(at);
            peak = peak.max(now);
            now -= of_children(at);
        }
        peak
    }
}

/// What an order leads to: the tree, by the first column after each that its elimination joins it to, and the entries of each
/// column of the factor, diagonal included.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    /// As it was given, but children before parents, those of one subtree together: as good, and closer in memory.
    pub(super) order: Vec<u32>,
    place: Vec<u32>,
    parents: Vec<u32>,
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
}

/// The place of each variable in an order.
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

fn postorder(parents: &[u32]) -> Vec<u32> {
    let n = parents.len();
    let (mut first, mut next) = (vec![NONE; n], vec![NONE; n]);
    let mut roots = vec![];
    for at in (0..n as u32).rev() {
        match parents[at as usize] {
            NONE => roots.push(at),
            parent => next[at as usize] = std::mem::replace(&mut first[parent as usize], at),
        }
    }
    let (mut order, mut path) = (Vec::with_capacity(n), vec![]);
    while let Some(root) = roots.pop() {
        path.push(root);
        while let Some(&at) = path.last() {
            match std::mem::replace(&mut first[at as usize], NONE) {
                NONE => {
                    order.push(at);
                    path.pop();
                }
                child => {
                    first[at as usize] = next[child as usize];
                    path.push(child);
                }
            }
        }
    }
    order
}

/// In a postordered tree (Gilbert, Ng and Peyton 1994).
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
            // the column is a leaf of the row's subtree if no column below it has an entry in the row
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

/// Where fronts begin, and the end.
fn joined(parents: &[u32], lengths: &[u32]) -> Vec<usize> {
    let n = parents.len();
    // front after front: its first column, and the entries that are not zero
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
