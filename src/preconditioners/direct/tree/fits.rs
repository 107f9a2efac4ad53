//! Validation of a tree that is read from a file.

use super::{Front, Tree};
use crate::formats::pattern::Pattern;
use std::ops::Range;

impl Tree {
    /// Returns whether this is a tree of fronts for `pattern`, with at most `numbers` stored values.
    pub(in super::super) fn fits(&self, pattern: &Pattern, numbers: usize) -> bool {
        let rows = pattern.rows();
        pattern.cols() == rows
            && self.is_permutation(rows)
            && self.fills_arrays(rows, numbers)
            && self.leaves_rows_to_parents()
            && self.steps_are_independent()
            && self.covers(pattern)
    }

    fn is_permutation(&self, rows: usize) -> bool {
        let [order, place] = [&self.order, &self.place];
        let back = |(at, &variable): (usize, &u32)| place.get(variable as usize) == Some(&(at as u32));
        order.len() == rows && place.len() == rows && order.iter().enumerate().all(back)
    }

    /// Returns whether the columns, rows and values of the fronts follow one another without gaps.
    fn fills_arrays(&self, rows: usize, numbers: usize) -> bool {
        let (mut column, mut row, mut number) = (0, 0, 0);
        for front in &self.fronts {
            let Front { columns, rows: below, numbers: own, .. } = front;
            let starts = columns.start == column && below.start == row && own.start == number;
            let ends = columns.end > column && below.end >= row && own.end >= number;
            let within = columns.end <= rows && below.end <= self.rows.len() && own.end <= numbers;
            if !(starts && ends && within && columns.len().checked_mul(front.height()) == Some(own.len())) {
                return false;
            }
            (column, row, number) = (columns.end, below.end, own.end);
        }
        column == rows && row == self.rows.len()
    }

    /// Returns whether each parent comes after its children and contains the rows below their columns.
    fn leaves_rows_to_parents(&self) -> bool {
        let n = self.order.len();
        self.fronts.iter().enumerate().all(|(at, front)| {
            let below = self.rows(front);
            let inside = below.iter().all(|&row| (front.columns.end..n).contains(&(row as usize)));
            let known = match front.parent.map(|parent| parent as usize) {
                None => below.is_empty(),
                Some(parent) => {
                    let parent = self.fronts.get(parent).filter(|_| parent > at);
                    parent.is_some_and(|parent| below.iter().all(|&row| self.has(parent, row)))
                }
            };
            inside && below.is_sorted_by(|one, next| one < next) && known
        })
    }

    /// Returns whether the tasks and the fronts above them (`top`) together contain every front once, in ascending
    /// order, no task needs the result of another task or of a front above, and each task has one parent.
    fn steps_are_independent(&self) -> bool {
        let count = self.fronts.len();
        let (mut tasks, mut top) = (self.tasks.iter().peekable(), self.top.iter().peekable());
        // first front of the task of each front; `count` for fronts above the tasks
        let mut task_of = vec![];
        while task_of.len() < count {
            let at = task_of.len();
            match tasks.next_if(|task| task.start == at) {
                Some(task) if task.end > at && task.end <= count => task_of.resize(task.end, at),
                None if top.next_if(|&&front| front == at).is_some() => task_of.push(count),
                _ => return false,
            }
        }
        let independent = |(at, front): (usize, &Front)| {
            front.parent.is_none_or(|parent| [count, task_of[at]].contains(&task_of[parent as usize]))
        };
        let has_one_parent = |task: &Range<usize>| {
            let parents = self.fronts[task.clone()].iter().map(|front| front.parent);
            let mut outer = parents.filter(|parent| parent.is_none_or(|parent| parent as usize >= task.end));
            let first = outer.next();
            outer.all(|parent| Some(parent) == first)
        };
        let whole = tasks.next().is_none() && top.next().is_none();
        whole && self.fronts.iter().enumerate().all(independent) && self.tasks.iter().all(has_one_parent)
    }

    /// Whether, for each entry, the front that eliminates the earlier of its two variables contains the later
    /// one.
    fn covers(&self, pattern: &Pattern) -> bool {
        let mut front_of = vec![0; self.order.len()];
        for (at, front) in self.fronts.iter().enumerate() {
            front_of[front.columns.clone()].fill(at);
        }
        (0..pattern.rows()).all(|row| {
            pattern.row(row).iter().all(|&column| {
                let (one, other) = (self.place[row], self.place[column as usize]);
                self.has(&self.fronts[front_of[one.min(other) as usize]], one.max(other))
            })
        })
    }

    /// Returns whether a front contains a position, among its columns or its rows below.
    fn has(&self, front: &Front, row: u32) -> bool {
        front.columns.contains(&(row as usize)) || self.rows(front).binary_search(&row).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Budget, DirectOptions};
    use super::super::{Both, Expected, Tree};
    use crate::ordering::minimum_degree;
    use crate::testing::matrices;

    #[test]
    fn forged_trees_do_not_fit() {
        let a = matrices::stencil7(8).csr::<f64>().unwrap();
        let (both, budget) = (Both::new([&a; 2]), Budget::new("test", DirectOptions::default(), a.rows()));
        let order = minimum_degree::of_sum(&a, &a).unwrap();
        let tree = Tree::new(Expected::new(order, &both).unwrap(), &both, [8; 2], budget).unwrap();
        assert!(tree.fits(a.pattern(), tree.numbers()) && !tree.fits(a.pattern(), tree.numbers() - 1));
        assert!(!tree.fits(matrices::stencil7(7).csr::<f64>().unwrap().pattern(), tree.numbers()));
        type Forgery = fn(&mut Tree);
        let forgeries: &[(&str, Forgery)] = &[
            ("order", |tree| tree.order.swap(0, 1)),
            ("place", |tree| tree.place[0] = u32::MAX),
            ("order of another pattern", |tree| {
                let last = tree.order.len() - 1;
                tree.order.swap(0, last);
                (tree.place[tree.order[0] as usize], tree.place[tree.order[last] as usize]) =
                    (0, last as u32);
            }),
            ("first column", |tree| tree.fronts[1].columns.start += 1),
            ("last column", |tree| tree.fronts[1].columns.end = usize::MAX),
            ("reversed rows", |tree| (tree.fronts[0].rows.start, tree.fronts[0].rows.end) = (5, 2)),
            ("rows beyond the list", |tree| tree.fronts[0].rows.end = usize::MAX),
            ("numbers", |tree| tree.fronts[0].numbers.start += 1),
            ("row out of range", |tree| tree.rows[0] = tree.order.len() as u32),
            ("unsorted rows", |tree| tree.rows.swap(0, 1)),
            ("no parent", |tree| tree.fronts[0].parent = None),
            ("parent before its child", |tree| tree.fronts[1].parent = Some(0)),
            ("parent out of range", |tree| tree.fronts[0].parent = Some(u32::MAX)),
            ("no front", |tree| tree.fronts.clear()),
            ("top out of range", |tree| tree.top.push(usize::MAX)),
            ("top without its last", |tree| tree.top.truncate(tree.top.len() - 1)),
            ("top in another order", |tree| tree.top.reverse()),
            ("task out of range", |tree| tree.tasks[0].end = usize::MAX),
            ("task without its last", |tree| tree.tasks[0].end -= 1),
            ("tasks in another order", |tree| tree.tasks.reverse()),
            ("tasks without a last", |tree| tree.tasks.truncate(tree.tasks.len() - 1)),
        ];
        for (what, forge) in forgeries {
            let mut forged = tree.clone();
            forge(&mut forged);
            assert!(!forged.fits(a.pattern(), forged.numbers()), "{what}");
        }
    }

    #[test]
    fn tasks_that_need_other_tasks_do_not_fit() {
        let a = matrices::stencil7(8).csr::<f64>().unwrap();
        let (both, budget) = (Both::new([&a; 2]), Budget::new("test", DirectOptions::default(), a.rows()));
        let order = minimum_degree::of_sum(&a, &a).unwrap();
        let mut tree = Tree::new(Expected::new(order, &both).unwrap(), &both, [8; 2], budget).unwrap();
        let count = tree.fronts.len();
        // a separate task for each front
        tree.tasks = (0..count).map(|front| front..front + 1).collect();
        tree.top.clear();
        assert!(!tree.fits(a.pattern(), tree.numbers()));
        // all fronts in sequence, without tasks
        tree.tasks.clear();
        tree.top = (0..count).collect();
        assert!(tree.fits(a.pattern(), tree.numbers()));
    }
}
