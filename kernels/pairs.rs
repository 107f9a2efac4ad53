//! Conflict-free schedule for pairs of nodes (edge colouring): each pair is processed by one of its two
//! nodes, and the pairs of one step share no node as owner or as other node.
//!
//! Where a pair is stored once (symmetric storage), its owner updates the sums of both nodes. The pairs of
//! one step have different owners and different other nodes, so that all pairs of a step can update at the
//! same time without atomics.
//!
//! 1. Owners: pairs are traversed along trails (as in an Euler tour); each pair is owned by the node from
//!    which the trail traverses it. A node then owns half of its pairs; half of an odd number is rounded up
//!    or down.
//! 2. Steps: owners and other nodes are the two sides of a bipartite graph, whose edges need as many colours
//!    as its largest degree (Kőnig 1916). If no colour is free at both ends of a pair, two colours are
//!    exchanged along an alternating path.

/// A scheduled pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Node that processes the pair.
    pub owner: u16,
    /// The other node.
    pub other: u16,
    /// Step in which the pair is processed.
    pub step: u16,
}

const NONE: u32 = u32::MAX;

/// Assigns an owner and a step to every pair of two different nodes. Returns the scheduled pairs and the
/// number of steps.
pub fn steps(nodes: usize, pairs: &[(u16, u16)]) -> (Vec<Pair>, usize) {
    let mut directed = trails(nodes, pairs);
    let mut degree = vec![[0usize; 2]; nodes];
    for pair in &directed {
        degree[pair.owner as usize][0] += 1;
        degree[pair.other as usize][1] += 1;
    }
    let colours = degree.iter().flatten().copied().max().unwrap_or(0);
    let mut taken = Taken { colours, pairs: [vec![NONE; nodes * colours], vec![NONE; nodes * colours]] };
    for at in 0..directed.len() {
        let Pair { owner, other, .. } = directed[at];
        let (free, free_there) = (taken.free(0, owner), taken.free(1, other));
        let both = (0..colours).find(|&c| taken.at(0, owner, c) == NONE && taken.at(1, other, c) == NONE);
        let step = both.unwrap_or_else(|| {
            taken.exchange(&mut directed, other, free, free_there);
            free
        });
        directed[at].step = step as u16;
        taken.set(&directed[at], at as u32);
    }
    (directed, colours)
}

/// Pair of each colour at each node: entry `node * colours + colour` of `pairs[0]` is the index of the pair
/// that has the node as owner, of `pairs[1]` that of the pair that has it as other node; [`NONE`] if the
/// colour is free there.
struct Taken {
    colours: usize,
    pairs: [Vec<u32>; 2],
}

impl Taken {
    fn at(&self, side: usize, node: u16, colour: usize) -> u32 {
        self.pairs[side][node as usize * self.colours + colour]
    }

    /// First colour that is free at a node as owner (`side` 0) or as other node (`side` 1). There is one as
    /// long as some pair of the node on that side has no colour.
    fn free(&self, side: usize, node: u16) -> usize {
        (0..self.colours).find(|&colour| self.at(side, node, colour) == NONE).unwrap_or(0)
    }

    fn set(&mut self, pair: &Pair, at: u32) {
        let colour = pair.step as usize;
        self.pairs[0][pair.owner as usize * self.colours + colour] = at;
        self.pairs[1][pair.other as usize * self.colours + colour] = at;
    }

    /// Exchanges `colour` and `instead` along the alternating path that starts at the other node `end`.
    /// Before the exchange, `colour` is free at the owner and `instead` is free at `end`; after it, `colour`
    /// is free at both.
    fn exchange(&mut self, pairs: &mut [Pair], end: u16, colour: usize, instead: usize) {
        let (mut path, mut node, mut side, mut next, mut then) = (vec![], end, 1, colour, instead);
        loop {
            let at = self.at(side, node, next);
            if at == NONE {
                break;
            }
            path.push(at as usize);
            let pair = &pairs[at as usize];
            node = if side == 1 { pair.owner } else { pair.other };
            side = 1 - side;
            std::mem::swap(&mut next, &mut then);
        }
        for &at in &path {
            self.set(&pairs[at], NONE);
        }
        for &at in &path {
            let step = &mut pairs[at].step;
            *step = if *step as usize == colour { instead as u16 } else { colour as u16 };
            self.set(&pairs[at], at as u32);
        }
    }
}

/// Orients the pairs along trails that cover all of them; trails that begin at nodes of odd degree come
/// first.
fn trails(nodes: usize, pairs: &[(u16, u16)]) -> Vec<Pair> {
    let mut starts = vec![0usize; nodes + 1];
    for &(a, b) in pairs {
        starts[a as usize + 1] += 1;
        starts[b as usize + 1] += 1;
    }
    for node in 0..nodes {
        starts[node + 1] += starts[node];
    }
    let (mut next, mut ends) = (starts.clone(), vec![(0u16, 0usize); 2 * pairs.len()]);
    for (at, &(a, b)) in pairs.iter().enumerate() {
        for (from, to) in [(a, b), (b, a)] {
            ends[next[from as usize]] = (to, at);
            next[from as usize] += 1;
        }
    }
    next.copy_from_slice(&starts);
    let mut left: Vec<usize> = starts.windows(2).map(|s| s[1] - s[0]).collect();
    let mut walked = vec![None; pairs.len()];
    let mut walk = |from: usize, left: &mut [usize]| {
        let mut node = from;
        while let Some(&(to, at)) = ends[next[node]..starts[node + 1]].first() {
            next[node] += 1;
            if walked[at].is_none() {
                walked[at] = Some(Pair { owner: node as u16, other: to, step: 0 });
                left[node] -= 1;
                left[to as usize] -= 1;
                node = to as usize;
            }
        }
    };
    for odd_only in [true, false] {
        for node in 0..nodes {
            while left[node] > 0 && (!odd_only || !left[node].is_multiple_of(2)) {
                walk(node, &mut left);
            }
        }
    }
    walked.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn holds(nodes: usize, pairs: &[(u16, u16)]) -> usize {
        let (found, count) = steps(nodes, pairs);
        assert_eq!(found.len(), pairs.len());
        let mut degree = vec![0usize; nodes];
        let mut owned = vec![0usize; nodes];
        let (mut owners, mut others) = (HashSet::new(), HashSet::new());
        for (pair, &(a, b)) in found.iter().zip(pairs) {
            assert!((pair.owner, pair.other) == (a, b) || (pair.owner, pair.other) == (b, a));
            assert!((pair.step as usize) < count);
            assert!(owners.insert((pair.step, pair.owner)), "an owner twice in a step");
            assert!(others.insert((pair.step, pair.other)), "another end twice in a step");
            degree[a as usize] += 1;
            degree[b as usize] += 1;
            owned[pair.owner as usize] += 1;
        }
        for (degree, owned) in degree.iter().zip(owned) {
            assert!(2 * owned <= degree + 1 && degree <= &(2 * owned + 1), "{owned} of {degree}");
        }
        assert_eq!(count, degree.iter().map(|d| d.div_ceil(2)).max().unwrap_or(0));
        count
    }

    #[test]
    fn steps_never_meet() {
        assert_eq!(holds(0, &[]), 0);
        assert_eq!(holds(5, &[]), 0);
        assert_eq!(holds(2, &[(1, 0)]), 1);
        // a cycle, a star, a complete graph
        assert_eq!(holds(9, &(0..9).map(|i| (i, (i + 1) % 9)).collect::<Vec<_>>()), 1);
        assert_eq!(holds(30, &(1..30).map(|i| (0, i)).collect::<Vec<_>>()), 15);
        let all = |n: u16| (0..n).flat_map(|i| (0..i).map(move |j| (i, j))).collect::<Vec<_>>();
        for n in 2..40 {
            holds(n as usize, &all(n));
        }
        // meshes with holes, in random order
        for seed in 1..30u32 {
            let keep = |&(i, j): &(u16, u16)| {
                (u32::from(i) * 7919 + u32::from(j) * 104_729)
                    .wrapping_mul(seed.wrapping_mul(2_654_435_761) | 1)
                    >> 29
                    > 2
                    && i - j < 40
            };
            let mut pairs: Vec<_> = all(150).into_iter().filter(keep).collect();
            pairs.sort_by_key(|&(i, j)| (u32::from(i) * 31 + u32::from(j) * 17 * seed) % 1009);
            assert!(pairs.len() > 500);
            holds(150, &pairs);
        }
    }
}
