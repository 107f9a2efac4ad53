//! Fill-reducing ordering by approximate minimum degree (AMD; Amestoy, Davis and Duff 1996).
//!
//! ```text
//! repeat until all variables are eliminated:
//!     p: a variable of minimum degree
//!     L_p: its neighbours, by entries or through an element; p becomes the element L_p and absorbs p's elements
//!     for each i in L_p: drop entries and elements that L_p covers
//!                        degree ≤ |L_p \ {i}| + entries of i + Σ |e \ L_p| over the other elements e of i
//!     merge variables of L_p with the same adjacency (supervariables)
//! ```
//!
//! An *element* represents the dense block that an elimination creates, by a list of its variables instead of
//! all pairs of them. In the graph of `Aᵀ A`, each row of `A` is such an element, so that columns of an
//! unsymmetric matrix are ordered without forming the product.
//!
//! Variables with very many neighbours (*dense* variables) are eliminated last: updating their degrees would
//! take long and hardly reduce the fill-in.

mod lists;
mod neighbours;
mod postorder;
#[cfg(test)]
mod tests;

use crate::error::Result;
use crate::formats::{Csr, Rows};
use crate::numbers::Real;
use krysp_kernels::interrupt::Phase;
use lists::Lists;
pub(crate) use neighbours::{Both, Neighbours, is_symmetric};
pub(crate) use postorder::postorder;
use std::mem::replace;

const NONE: u32 = u32::MAX;

/// A variable is dense, and is eliminated last, if its initial list has more items than both `DENSE` and
/// `DENSE_BY_ROOT √n`. The items are its neighbours, or, for `Aᵀ A`, the rows of `A` with an entry in its column.
/// Rows of `A` with more entries than that are ignored. The defaults of AMD (Amestoy, Davis and Duff 2004).
const DENSE: usize = 16;
const DENSE_BY_ROOT: f64 = 10.0;

/// List items scanned between two polls for interruption: about 0.2 ms. The time is estimated, not measured.
const POLLED: usize = 1 << 16;

/// Computes an elimination order for the pattern of `A + Aᵀ`: the variables, those eliminated first in front.
#[cfg(test)]
pub(crate) fn of_sum<T: Real>(a: &Csr<T>, transposed: &Csr<T>) -> Result<Vec<u32>> {
    Ok(of_symmetric(a.rows(), a.nnz(), &Both::new([a, transposed]))?.order)
}

/// An elimination order, and the size of the factor in this order.
#[derive(Debug)]
pub(crate) struct Ordered {
    pub(crate) order: Vec<u32>,
    /// Number of entries of one triangular factor, including the diagonal, and the sum of the squares of the
    /// lengths of its columns. `None` if there are dense variables, whose entries are not counted.
    pub(crate) work: Option<[f64; 2]>,
    /// Upper bounds on both numbers of `work`, for which rows of dense variables count as full.
    pub(crate) at_most: [f64; 2],
}

/// Computes an elimination order for `n` variables with about `expected` pairs of neighbours.
pub(crate) fn of_symmetric(n: usize, expected: usize, neighbours: &impl Neighbours) -> Result<Ordered> {
    let mut lists = Lists::default();
    lists.items.reserve(expected);
    let mut listed = vec![NONE; n];
    for variable in 0..n as u32 {
        listed[variable as usize] = variable;
        // `for_each` compiles to one loop for each part of the chained iterator; `for` tests at each item which part is next
        neighbours.of(variable).for_each(|other| {
            if replace(&mut listed[other as usize], variable) != variable {
                lists.items.push(other);
            }
        });
        lists.close(0);
    }
    Elimination::new(n, lists, vec![]).run()
}

/// Computes an elimination order of the columns for the pattern of `Aᵀ A`, whose Cholesky factor bounds the
/// fill-in of LU for any choice of pivot rows (George and Ng 1985). Entries for which `kept(row, column)` is
/// false are ignored.
pub(crate) fn of_columns<T: Real>(
    a: &Csr<T>,
    transposed: &Csr<T>,
    kept: impl Fn(u32, u32) -> bool,
) -> Result<Vec<u32>> {
    let n = a.cols();
    let mut lists = Lists::default();
    let longest = longest(n);
    let (rows, columns) = (Rows::of(a), Rows::of(transposed));
    let is_short = |row: u32| rows.range(row as usize).len() <= longest;
    for column in 0..n as u32 {
        let all = columns.columns(column as usize).iter();
        lists.items.extend(all.filter(|&&row| is_short(row) && kept(row, column)).map(|row| row + n as u32));
        let last = lists.starts.last().copied().unwrap_or(0);
        lists.close(lists.items.len() - last);
    }
    let mut sizes = vec![];
    for row in 0..a.rows() as u32 {
        let all = if is_short(row) { rows.columns(row as usize) } else { &[] };
        lists.items.extend(all.iter().filter(|&&column| kept(row, column)));
        lists.close(0);
        sizes.push(lists.lengths.last().copied().unwrap_or(0));
    }
    Ok(Elimination::new(n, lists, sizes).run()?.order)
}

fn longest(n: usize) -> usize {
    DENSE.max((DENSE_BY_ROOT * (n as f64).sqrt()) as usize)
}

/// State of the elimination. The variables have the numbers 0 to n − 1, and an eliminated variable becomes
/// the element with the same number. Larger numbers are elements that exist before the first elimination.
struct Elimination {
    n: usize,
    lists: Lists,
    /// Number of variables that a supervariable represents: negative while it belongs to the newest element,
    /// zero once it is eliminated or merged into another.
    weights: Vec<i32>,
    /// Total weight of an element's variables.
    sizes: Vec<u32>,
    /// Zero if there is no such element. From `base` on: `base` plus the weight of the element's variables
    /// outside of the newest element. Other values: this weight is not known yet.
    outside: Vec<u64>,
    base: u64,
    /// Element that absorbed the element of each eliminated variable.
    parents: Vec<u32>,
    /// Upper bound on the degree of each variable.
    degrees: Vec<u32>,
    /// The first variable of each degree; `next` and `previous` link the variables of a degree.
    heads: Vec<u32>,
    next: Vec<u32>,
    previous: Vec<u32>,
    least: usize,
    /// `members[v]` is the next variable after `v` in the linked list of its supervariable ([`NONE`]: the
    /// end); `last_member` is the last one of each list.
    members: Vec<u32>,
    last_member: Vec<u32>,
    left: usize,
    /// Number of items beyond which the lists are compacted.
    capacity: usize,
}

impl Elimination {
    fn new(n: usize, lists: Lists, from_start: Vec<u32>) -> Elimination {
        let mut outside = vec![0; n];
        outside.extend(from_start.iter().map(|&size| u64::from(size > 0)));
        let mut sizes = vec![0; n];
        sizes.extend(from_start);
        let capacity = 2 * lists.items.len() + n;
        Elimination {
            n,
            lists,
            weights: vec![1; n],
            sizes,
            outside,
            base: 1,
            parents: vec![NONE; n],
            degrees: vec![0; n],
            heads: vec![NONE; n + 1],
            next: vec![NONE; n],
            previous: vec![NONE; n],
            least: 0,
            members: vec![NONE; n],
            last_member: (0..n as u32).collect(),
            left: n,
            capacity,
        }
    }

    /// Takes the dense variables out, and returns them. Computes the first degrees of the others.
    fn set_up(&mut self) -> Vec<u32> {
        // Compare the number of items, not the degree: for `Aᵀ A` the items are elements (rows with an
        // entry in the column), and a column with few entries may have many neighbours.
        let longest = longest(self.n);
        let dense: Vec<u32> =
            (0..self.n as u32).filter(|&v| self.lists.range(v as usize).len() > longest).collect();
        for &v in &dense {
            // subtract the variable from the sizes of its elements
            self.weights[v as usize] = 0;
            self.left -= 1;
            let elements =
                &self.lists.items[self.lists.range(v as usize)][..self.lists.elements[v as usize] as usize];
            for &e in elements {
                self.sizes[e as usize] -= 1;
                self.outside[e as usize] = u64::from(self.sizes[e as usize] > 0);
            }
        }
        // Of the variables of a degree, the last one is eliminated first, as in AMD. In the opposite order, factors of five grids take
        // 1.03 to 1.8 times the work.
        for v in 0..self.n {
            if self.weights[v] == 0 {
                continue;
            }
            let items = &self.lists.items[self.lists.range(v)];
            let (elements, neighbours) = items.split_at(self.lists.elements[v] as usize);
            let by_elements: usize = elements.iter().map(|&e| self.sizes[e as usize] as usize - 1).sum();
            let sparse = neighbours.iter().filter(|&&other| self.weights[other as usize] > 0).count();
            self.degrees[v] = (sparse + by_elements).min(self.n - 1) as u32;
            self.insert(v);
        }
        dense
    }

    fn run(mut self) -> Result<Ordered> {
        let (n, all) = (self.n, self.sizes.len());
        let dense = self.set_up();
        let (mut pivots, most) = (Vec::with_capacity(n), self.left);
        let (mut seen, mut compared) = (vec![0u32; all], 0u32);
        let (mut hashes, mut joined): (Vec<u64>, Vec<u32>) = (vec![], vec![]);
        let mut at_most = [0.0; 2];
        let phase = Phase::new("minimum degree ordering", n as f64);
        let (mut polled_at, mut scanned) = (0, 0);
        while let Some(p) = self.pop() {
            if scanned >= POLLED {
                phase.advance((most - self.left - polled_at) as u64)?;
                (polled_at, scanned) = (most - self.left, 0);
            }
            let pivot = p as usize;
            self.compact();
            let mut weight = replace(&mut self.weights[pivot], 0) as u32;
            let mut size = self.collect(pivot, &mut joined);
            self.base += n as u64 + 1;
            scanned += self.measure(&joined);
            hashes.clear();
            for &i in &joined {
                let (degree, hash) = self.clean(i as usize, p);
                if degree == 0 {
                    // all neighbours of the variable are in L_p: eliminate it with the pivot (mass
                    // elimination)
                    let own = replace(&mut self.weights[i as usize], 0).unsigned_abs();
                    (weight, size) = (weight + own, size - own);
                    self.join(pivot, i as usize);
                    continue;
                }
                let least = &mut self.degrees[i as usize];
                *least = degree.min(*least);
                hashes.push(u64::from(hash) << 32 | u64::from(i));
            }
            if hashes.len() > 1 {
                hashes.sort_unstable();
            }
            for group in hashes.chunk_by(|a, b| a >> 32 == b >> 32).filter(|group| group.len() > 1) {
                self.merge(group, &mut seen, &mut compared);
            }
            self.left -= weight as usize;
            pivots.push(p);
            count(&mut at_most, weight, size as usize + dense.len());
            self.close(pivot, &joined, size);
        }
        count(&mut at_most, dense.len() as u32, 0);
        let work = dense.is_empty().then_some(at_most);
        let mut order = self.in_postorder(&pivots);
        order.extend(dense);
        Ok(Ordered { order, work, at_most })
    }

    /// Lists the variables of the new element in `joined`, and absorbs the pivot's elements. Returns the sum
    /// of the weights of these variables.
    fn collect(&mut self, pivot: usize, joined: &mut Vec<u32>) -> u32 {
        joined.clear();
        let own = self.lists.range(pivot);
        let elements = own.start + self.lists.elements[pivot] as usize;
        let (items, weights) = (&*self.lists.items, &mut *self.weights);
        let mut size = 0;
        let mut take = |list: &[u32]| {
            for &i in list {
                let weight = &mut weights[i as usize];
                if *weight > 0 {
                    size += *weight as u32;
                    *weight = -*weight;
                    joined.push(i);
                }
            }
        };
        for &e in &items[own.start..elements] {
            if replace(&mut self.outside[e as usize], 0) > 0 {
                absorb(&mut self.parents, e, pivot as u32);
                take(&items[self.lists.range(e as usize)]);
            }
        }
        take(&items[elements..own.end]);
        size
    }

    /// Removes the variables of the new element from the degree lists. For each element `e` that has one of
    /// these variables, sets `outside[e]` to `base` plus the weight of its other variables. Returns the
    /// number of items scanned.
    fn measure(&mut self, joined: &[u32]) -> usize {
        joined.iter().for_each(|&i| self.remove(i as usize));
        let Lists { items, starts, lengths, elements } = &self.lists;
        let (items, starts, lengths, elements) = (&**items, &**starts, &**lengths, &**elements);
        let (sizes, weights, outside, base) = (&*self.sizes, &*self.weights, &mut *self.outside, self.base);
        let mut scanned = 0;
        for &i in joined {
            let i = i as usize;
            scanned += lengths[i] as usize + 1;
            let weight = u64::from(weights[i].unsigned_abs());
            for &e in &items[starts[i]..][..elements[i] as usize] {
                let outside = &mut outside[e as usize];
                if *outside >= base {
                    *outside -= weight;
                } else if *outside > 0 {
                    *outside = base + u64::from(sizes[e as usize]) - weight;
                }
            }
        }
        scanned
    }

    /// Removes what the new element covers from a variable's list, and adds the pivot as an element. Returns
    /// an upper bound on the weight of the neighbours outside of the new element, and a hash of the list.
    fn clean(&mut self, i: usize, p: u32) -> (u32, u32) {
        let Lists { items, starts, lengths, elements } = &mut self.lists;
        let (outside, weights, base) = (&mut *self.outside, &*self.weights, self.base);
        let parents = &mut *self.parents;
        let own = &mut items[starts[i]..][..lengths[i] as usize];
        let middle = elements[i] as usize;
        let (mut to, mut degree, mut hash) = (0, 0u64, p);
        for at in 0..middle {
            let e = own[at];
            let outside = &mut outside[e as usize];
            if *outside > base {
                degree += *outside - base;
                hash = hash.wrapping_add(e);
                own[to] = e;
                to += 1;
            } else if replace(outside, 0) > 0 {
                // the element is a subset of the new one
                absorb(parents, e, p);
            }
        }
        let first = to;
        for at in middle..own.len() {
            let j = own[at];
            let weight = weights[j as usize];
            if weight > 0 {
                degree += weight as u64;
                hash = hash.wrapping_add(j);
                own[to] = j;
                to += 1;
            }
        }
        // there is space for the pivot, because the item that made it a neighbour (the pivot itself or an
        // absorbed element) was removed
        own[to] = own[first];
        own[first] = p;
        elements[i] = first as u32 + 1;
        lengths[i] = to as u32 + 1;
        (degree.min(u64::from(u32::MAX >> 1)) as u32, hash)
    }

    /// Lists the variables that are left in the new element, and updates their degrees.
    fn close(&mut self, pivot: usize, joined: &[u32], size: u32) {
        let first = self.lists.items.len();
        for &i in joined {
            let weight = &mut self.weights[i as usize];
            if *weight == 0 {
                continue;
            }
            *weight = -*weight;
            let own = *weight as u32;
            self.lists.items.push(i);
            let most = self.left as u32 - own;
            let degree = &mut self.degrees[i as usize];
            *degree = degree.saturating_add(size - own).min(most);
            self.insert(i as usize);
        }
        let kept = self.lists.items.len() - first;
        (self.lists.starts[pivot], self.lists.lengths[pivot]) = (first, kept as u32);
        (self.sizes[pivot], self.outside[pivot]) = (size, u64::from(kept > 0));
    }

    /// Merges variables with equal lists into supervariables. `group` holds variables with equal hashes, in
    /// the lower 32 bits.
    fn merge(&mut self, group: &[u64], seen: &mut [u32], compared: &mut u32) {
        for (at, &i) in group.iter().enumerate() {
            let i = i as u32 as usize;
            if self.weights[i] == 0 || at + 1 == group.len() {
                continue;
            }
            *compared = compared.wrapping_add(1);
            if *compared == 0 {
                seen.fill(0);
                *compared = 1;
            }
            let mine = self.lists.range(i);
            self.lists.items[mine].iter().for_each(|&item| seen[item as usize] = *compared);
            for &j in &group[at + 1..] {
                let j = j as u32 as usize;
                let alike = self.weights[j] != 0
                    && self.lists.lengths[j] == self.lists.lengths[i]
                    && self.lists.elements[j] == self.lists.elements[i]
                    && self.lists.items[self.lists.range(j)]
                        .iter()
                        .all(|&item| seen[item as usize] == *compared);
                if alike {
                    self.weights[i] += replace(&mut self.weights[j], 0);
                    self.join(i, j);
                }
            }
        }
    }

    /// Appends the variables that `j` represents to those of `i`.
    fn join(&mut self, i: usize, j: usize) {
        self.members[self.last_member[i] as usize] = j as u32;
        self.last_member[i] = self.last_member[j];
    }

    /// Lists all eliminated variables in a postorder of the tree of elements: the fill-in is that of the order
    /// of the pivots, and variables that are eliminated one after the other are neighbours.
    fn in_postorder(&self, pivots: &[u32]) -> Vec<u32> {
        let mut steps = vec![NONE; self.n];
        (0..).zip(pivots).for_each(|(step, &pivot)| steps[pivot as usize] = step);
        let parent = |&pivot: &u32| steps.get(self.parents[pivot as usize] as usize).copied();
        let parents: Vec<u32> = pivots.iter().map(|pivot| parent(pivot).unwrap_or(NONE)).collect();
        let mut order = Vec::with_capacity(self.n);
        for step in postorder(&parents) {
            let first = order.len();
            let mut at = pivots[step as usize];
            while at != NONE {
                order.push(at);
                at = self.members[at as usize];
            }
            // A pivot's variables have no neighbours outside of its element, except dense ones, which are not
            // counted. Before the pivot, they cause no fill-in with its dense neighbours.
            order[first..].reverse();
        }
        order
    }

    fn insert(&mut self, v: usize) {
        let degree = self.degrees[v] as usize;
        let head = replace(&mut self.heads[degree], v as u32);
        (self.next[v], self.previous[v]) = (head, NONE);
        if head != NONE {
            self.previous[head as usize] = v as u32;
        }
        self.least = self.least.min(degree);
    }

    fn remove(&mut self, v: usize) {
        let (next, previous) = (self.next[v], self.previous[v]);
        if next != NONE {
            self.previous[next as usize] = previous;
        }
        if previous == NONE {
            self.heads[self.degrees[v] as usize] = next;
        } else {
            self.next[previous as usize] = next;
        }
    }

    /// Removes a variable of minimum degree, and returns it.
    fn pop(&mut self) -> Option<u32> {
        while self.heads.get(self.least)? == &NONE {
            self.least += 1;
        }
        let v = self.heads[self.least];
        self.remove(v as usize);
        Some(v)
    }

    /// Compacts the lists if there are more than `capacity` items, many of which belong to removed lists.
    fn compact(&mut self) {
        if self.lists.items.len() <= self.capacity {
            return;
        }
        let mut items = Vec::with_capacity(self.capacity);
        for of in 0..self.sizes.len() {
            let there = self.outside[of] > 0 || self.weights.get(of).is_some_and(|&weight| weight > 0);
            let range = self.lists.range(of);
            self.lists.starts[of] = items.len();
            if there {
                items.extend_from_slice(&self.lists.items[range]);
            } else {
                self.lists.lengths[of] = 0;
            }
        }
        self.capacity = self.capacity.max(2 * items.len() + self.n);
        self.lists.items = items;
    }
}

/// Adds to the number of entries, and to the sum of the squared lengths, those of `columns` columns of the factor that
/// share `rows` rows below them.
fn count([entries, squares]: &mut [f64; 2], columns: u32, rows: usize) {
    let (columns, rows) = (f64::from(columns), rows as f64);
    *entries += columns * (rows + 0.5 * (columns + 1.0));
    *squares += columns * (rows * rows + (columns + 1.0) * (rows + (2.0 * columns + 1.0) / 6.0));
}

/// Records that element `by` absorbed `element`, unless that existed before the first elimination.
fn absorb(parents: &mut [u32], element: u32, by: u32) {
    if let Some(parent) = parents.get_mut(element as usize) {
        *parent = by;
    }
}
