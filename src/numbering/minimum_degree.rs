//! Fill-reducing ordering by approximate minimum degree (AMD; Amestoy, Davis and Duff 1996).
//!
//! ```text
//! repeat until all variables are eliminated:
//!     p: a variable of minimum degree
//!     L_p: its neighbours, by entries or through an element; p becomes the element L_p and absorbs p's elements
//!     for each i in L_p: drop entries and elements that L_p covers
//!                        degree ≤ |L_p| + entries of i + |its other elements \ L_p|
//!     merge variables of L_p with the same adjacency (supervariables)
//! ```
//!
//! An *element* represents the dense block that an elimination creates, by a list of its variables instead of
//! all pairs of them. In the graph of `Aᵀ A`, each row of `A` is such an element, so that columns of an
//! unsymmetric matrix are ordered without forming the product.
//!
//! Variables with very many neighbours (*dense* variables) are eliminated last: updating their degrees would
//! take long and hardly reduce the fill-in.

use crate::{Csr, Real, Result};
use krysp_kernels::interrupt::Phase;
use std::mem::replace;

const NONE: u32 = u32::MAX;

/// A variable is dense, and is eliminated last, if it has more neighbours than both `DENSE` and
/// `DENSE_BY_ROOT √n`.
const DENSE: usize = 16;
const DENSE_BY_ROOT: f64 = 10.0;

/// List items scanned between two polls for interruption: about 0.2 ms.
const POLLED: usize = 1 << 16;

/// Computes an elimination order for the pattern of `A + Aᵀ`. Returns the variables in the order of
/// elimination.
pub(crate) fn of_sum<T: Real>(a: &Csr<T>, transposed: &Csr<T>) -> Result<Vec<u32>> {
    let n = a.rows();
    let mut lists = Lists::default();
    for row in 0..n {
        let (mut left, mut right) = (a.row_columns(row), transposed.row_columns(row));
        while let Some(next) = left.first().into_iter().chain(right.first()).min().copied() {
            left = &left[usize::from(left.first() == Some(&next))..];
            right = &right[usize::from(right.first() == Some(&next))..];
            if next as usize != row {
                lists.items.push(next);
            }
        }
        lists.close(0);
    }
    Elimination::new(n, lists, vec![]).run()
}

/// Computes an elimination order of the columns for the pattern of `Aᵀ A`, which contains the pattern of `U`
/// for any choice of pivot rows.
pub(crate) fn of_columns<T: Real>(a: &Csr<T>, transposed: &Csr<T>) -> Result<Vec<u32>> {
    let n = a.cols();
    let mut lists = Lists::default();
    let longest = longest(n);
    let kept = |row: usize| a.row_columns(row).len() <= longest;
    for column in 0..n {
        let rows = transposed.row_columns(column).iter().filter(|&&row| kept(row as usize));
        lists.items.extend(rows.map(|row| row + n as u32));
        let last = lists.starts.last().copied().unwrap_or(0);
        lists.close(lists.items.len() - last);
    }
    let mut sizes = vec![];
    for row in 0..a.rows() {
        let columns = if kept(row) { a.row_columns(row) } else { &[] };
        lists.items.extend_from_slice(columns);
        sizes.push(columns.len() as u32);
        lists.close(0);
    }
    Elimination::new(n, lists, sizes).run()
}

fn longest(n: usize) -> usize {
    DENSE.max((DENSE_BY_ROOT * (n as f64).sqrt()) as usize)
}

/// Adjacency lists, stored consecutively: for each variable its elements, then its neighbours; for each
/// element its variables.
struct Lists {
    items: Vec<u32>,
    starts: Vec<usize>,
    lengths: Vec<u32>,
    /// Number of items in each list that are elements.
    elements: Vec<u32>,
}

impl Default for Lists {
    fn default() -> Lists {
        Lists { items: vec![], starts: vec![0], lengths: vec![], elements: vec![] }
    }
}

impl Lists {
    /// Ends the current list.
    fn close(&mut self, elements: usize) {
        let start = self.starts.last().copied().unwrap_or(0);
        self.lengths.push((self.items.len() - start) as u32);
        self.elements.push(elements as u32);
        self.starts.push(self.items.len());
    }

    fn range(&self, of: usize) -> std::ops::Range<usize> {
        self.starts[of]..self.starts[of] + self.lengths[of] as usize
    }
}

/// State of the elimination. The variables have the numbers 0 to n − 1, and an eliminated variable becomes
/// the element with the same number. Larger numbers are elements that exist before the first elimination.
struct Elimination {
    n: usize,
    lists: Lists,
    /// Number of variables that a supervariable represents, zero once it is eliminated or merged into
    /// another.
    weights: Vec<u32>,
    /// Total weight of an element's variables, zero if there is no such element.
    sizes: Vec<u32>,
    /// Upper bound on the degree of each variable.
    degrees: Vec<u32>,
    /// The first variable of each degree; `next` and `previous` link the variables of a degree.
    heads: Vec<u32>,
    next: Vec<u32>,
    previous: Vec<u32>,
    least: usize,
    /// Linked list of the variables merged into each supervariable, and the last one of each.
    members: Vec<u32>,
    last_member: Vec<u32>,
    left: usize,
    /// Number of items beyond which the lists are compacted.
    capacity: usize,
}

impl Elimination {
    fn new(n: usize, lists: Lists, from_start: Vec<u32>) -> Elimination {
        let mut sizes = vec![0; n];
        sizes.extend(from_start);
        let capacity = 2 * lists.items.len() + n;
        Elimination {
            n,
            lists,
            weights: vec![1; n],
            sizes,
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

    fn run(mut self) -> Result<Vec<u32>> {
        let (n, all) = (self.n, self.sizes.len());
        let mut order = Vec::with_capacity(n);
        let mut dense = vec![];
        for v in 0..n {
            let items = &self.lists.items[self.lists.range(v)];
            let elements = self.lists.elements[v] as usize;
            let by_elements: usize =
                items[..elements].iter().map(|&e| self.sizes[e as usize] as usize - 1).sum();
            let degree = (items.len() - elements + by_elements).min(n - 1);
            self.degrees[v] = degree as u32;
            // for `Aᵀ A`, a list holds elements, the rows with an entry in the column: a column with few
            // entries may have many neighbours
            if items.len() > longest(n) {
                dense.push(v as u32);
            }
        }
        for &v in &dense {
            // subtract the variable from the sizes of its elements
            self.weights[v as usize] = 0;
            self.left -= 1;
            let elements =
                &self.lists.items[self.lists.range(v as usize)][..self.lists.elements[v as usize] as usize];
            elements.iter().for_each(|&e| self.sizes[e as usize] -= 1);
        }
        (0..n)
            .rev()
            .filter(|&v| self.weights[v] > 0)
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|v| self.insert(v));
        let mut in_pivot = vec![NONE; n];
        let mut outside = vec![0u64; all];
        let (mut base, mut seen, mut compared) = (1u64, vec![0u32; all], 0u32);
        let mut hashes: Vec<(u32, u32)> = vec![];
        let phase = Phase::new("minimum degree ordering", n as f64);
        let (mut polled_at, mut scanned) = (0, 0);
        while let Some(p) = self.pop() {
            if scanned >= POLLED {
                phase.advance((order.len() - polled_at) as u64)?;
                (polled_at, scanned) = (order.len(), 0);
            }
            let pivot = p as usize;
            self.compact();
            let mut weight = replace(&mut self.weights[pivot], 0);
            let first = self.lists.items.len();
            let mut size = self.collect(pivot, &mut in_pivot);
            let end = self.lists.items.len();
            base += n as u64 + 1;
            for at in first..end {
                let i = self.lists.items[at] as usize;
                self.remove(i);
                scanned += self.lists.lengths[i] as usize + 1;
                let start = self.lists.starts[i];
                for at in start..start + self.lists.elements[i] as usize {
                    let e = self.lists.items[at] as usize;
                    if self.sizes[e] == 0 {
                        continue;
                    }
                    if outside[e] < base {
                        outside[e] = base + u64::from(self.sizes[e]);
                    }
                    outside[e] -= u64::from(self.weights[i]);
                }
            }
            hashes.clear();
            for at in first..end {
                let i = self.lists.items[at] as usize;
                let (degree, hash) = self.clean(i, p, &in_pivot, &outside, base);
                if degree == 0 {
                    // all neighbours of the variable are in L_p: eliminate it with the pivot (mass
                    // elimination)
                    let own = replace(&mut self.weights[i], 0);
                    (weight, size) = (weight + own, size - own);
                    self.join(pivot, i);
                    continue;
                }
                self.degrees[i] = self.degrees[i].min(degree);
                hashes.push((hash, i as u32));
            }
            hashes.sort_unstable();
            for group in hashes.chunk_by(|a, b| a.0 == b.0) {
                self.merge(group, &mut seen, &mut compared);
            }
            self.left -= weight as usize;
            self.append(pivot, &mut order);
            // the element keeps the variables that are not eliminated
            let mut kept = first;
            for at in first..end {
                let i = self.lists.items[at] as usize;
                let own = self.weights[i];
                if own == 0 {
                    continue;
                }
                self.lists.items[kept] = i as u32;
                kept += 1;
                let most = self.left as u32 - own;
                self.degrees[i] = self.degrees[i].saturating_add(size - own).min(most);
                self.insert(i);
            }
            self.lists.items.truncate(kept);
            (self.lists.starts[pivot], self.lists.lengths[pivot]) = (first, (kept - first) as u32);
            self.sizes[pivot] = if kept > first { size } else { 0 };
        }
        order.extend(dense);
        Ok(order)
    }

    /// Appends the list of the new element's variables, and absorbs the pivot's elements. Returns the total
    /// weight of these variables.
    fn collect(&mut self, pivot: usize, in_pivot: &mut [u32]) -> u32 {
        let mut size = 0;
        let own = self.lists.range(pivot);
        let elements = own.start + self.lists.elements[pivot] as usize;
        let mut take = |lists: &mut Lists, range: std::ops::Range<usize>, weights: &[u32]| {
            for at in range {
                let i = lists.items[at];
                if weights[i as usize] > 0 && in_pivot[i as usize] != pivot as u32 {
                    in_pivot[i as usize] = pivot as u32;
                    size += weights[i as usize];
                    lists.items.push(i);
                }
            }
        };
        for at in own.start..elements {
            let e = self.lists.items[at] as usize;
            if replace(&mut self.sizes[e], 0) > 0 {
                let range = self.lists.range(e);
                take(&mut self.lists, range, &self.weights);
            }
        }
        take(&mut self.lists, elements..own.end, &self.weights);
        size
    }

    /// Removes neighbours and elements that the new element covers from the list of variable `i`, and adds
    /// the pivot `p` as an element. Returns an upper bound on the weight of the other neighbours, and a hash
    /// of the list.
    fn clean(&mut self, i: usize, p: u32, in_pivot: &[u32], outside: &[u64], base: u64) -> (u32, u32) {
        let Lists { items, starts, lengths, elements } = &mut self.lists;
        let start = starts[i];
        let (middle, end) = (start + elements[i] as usize, start + lengths[i] as usize);
        let (mut to, mut degree, mut hash) = (start, 0u64, p);
        for at in start..middle {
            let e = items[at];
            let rest = outside[e as usize].saturating_sub(base);
            if self.sizes[e as usize] == 0 {
                continue;
            }
            if rest == 0 {
                // the element is a subset of the new one: absorb it
                self.sizes[e as usize] = 0;
                continue;
            }
            degree += rest;
            hash = hash.wrapping_add(e);
            items[to] = e;
            to += 1;
        }
        let first = to;
        for at in middle..end {
            let j = items[at];
            let weight = self.weights[j as usize];
            if weight > 0 && in_pivot[j as usize] != p {
                degree += u64::from(weight);
                hash = hash.wrapping_add(j);
                items[to] = j;
                to += 1;
            }
        }
        // there is space for the pivot, because the item that connected `i` with it was removed
        items[to] = items[first];
        items[first] = p;
        elements[i] = (first - start + 1) as u32;
        lengths[i] = (to - start + 1) as u32;
        (degree.min(u64::from(u32::MAX >> 1)) as u32, hash)
    }

    /// Merges variables with equal lists into supervariables. `group` holds variables with equal hashes.
    fn merge(&mut self, group: &[(u32, u32)], seen: &mut [u32], compared: &mut u32) {
        for (at, &(_, i)) in group.iter().enumerate() {
            let i = i as usize;
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
            for &(_, j) in &group[at + 1..] {
                let j = j as usize;
                let alike = self.weights[j] > 0
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

    fn append(&self, pivot: usize, order: &mut Vec<u32>) {
        let mut at = pivot as u32;
        while at != NONE {
            order.push(at);
            at = self.members[at as usize];
        }
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
            let there = self.sizes[of] > 0 || self.weights.get(of).is_some_and(|&weight| weight > 0);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::derived::Derivation;
    use crate::testing::matrices::{self, edge};

    /// Number of entries of `L` after elimination in this order, for a symmetric pattern, including the
    /// diagonal.
    fn fill(a: &Csr<f64>, order: &[u32]) -> usize {
        let mut rows: Vec<std::collections::BTreeSet<u32>> =
            (0..a.rows()).map(|row| a.row_columns(row).iter().copied().collect()).collect();
        let mut count = 0;
        for &v in order {
            let joined = std::mem::take(&mut rows[v as usize]);
            count += joined.len();
            for &i in joined.iter().filter(|&&i| i != v) {
                rows[i as usize].extend(&joined);
                rows[i as usize].remove(&v);
            }
        }
        count
    }

    fn ordered(a: &Csr<f64>, order: impl Fn(&Csr<f64>, &Csr<f64>) -> Result<Vec<u32>>) -> Vec<u32> {
        let order = order(a, &Derivation::transposed(a).unwrap().0).unwrap();
        crate::Numbering::from_old_of_new(order.clone()).unwrap();
        order
    }

    #[test]
    fn trees_and_arrows_have_no_fill() {
        for a in [edge::tridiagonal(200), edge::arrow(40), edge::arrow(2000), edge::diagonal(7)] {
            let a = a.csr::<f64>().unwrap();
            assert_eq!(fill(&a, &ordered(&a, of_sum)), (a.nnz() + a.rows()) / 2);
        }
        let none = edge::empty(5, 5).csr::<f64>().unwrap();
        assert_eq!(ordered(&none, of_sum).len() + ordered(&none, of_columns).len(), 10);
    }

    #[test]
    fn meshes_have_little_fill() {
        for (a, most) in
            [(matrices::stencil7(9), 0.5), (matrices::elasticity(4), 0.9), (matrices::circuit(600, 20), 0.5)]
        {
            let a = a.csr::<f64>().unwrap();
            let natural: Vec<u32> = (0..a.rows() as u32).collect();
            let (given, found) = (fill(&a, &natural), fill(&a, &ordered(&a, of_sum)));
            assert!((found as f64) < most * given as f64, "{given} {found}");
        }
    }

    /// An ordering of the columns of a matrix gives about as little fill-in as an ordering of `Aᵀ A`.
    #[test]
    fn columns_are_ordered_without_the_product() {
        let a = matrices::stencil7(7).csr::<f64>().unwrap();
        let n = a.rows();
        let rows: Vec<_> = a.triplets().map(|(i, j, v)| ((i * 5 + 1) % n, j, v)).collect();
        let shuffled = Csr::from_triplets(n, n, &rows).unwrap();
        let mut squared = vec![];
        for row in 0..n {
            for &i in a.row_columns(row) {
                squared.extend(a.row_columns(row).iter().map(|&j| (i as usize, j as usize, 1.0)));
            }
        }
        let squared = Csr::from_triplets(n, n, &squared).unwrap();
        let [by_rows, by_product] =
            [ordered(&shuffled, of_columns), ordered(&squared, of_sum)].map(|order| fill(&squared, &order));
        assert!((by_rows as f64) < 1.1 * by_product as f64, "{by_rows} {by_product}");
    }
}
