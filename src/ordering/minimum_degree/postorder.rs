//! Postorder of a forest.

use super::NONE;
use std::mem::replace;

/// Lists the nodes of a forest so that children precede their parents, and the nodes of each subtree are
/// contiguous. `parents` holds the parent of each node, which has a larger number, or `NONE`.
pub(crate) fn postorder(parents: &[u32]) -> Vec<u32> {
    let n = parents.len();
    let (mut first, mut next) = (vec![NONE; n], vec![NONE; n]);
    let mut roots = vec![];
    for at in (0..n as u32).rev() {
        match parents[at as usize] {
            NONE => roots.push(at),
            parent => next[at as usize] = replace(&mut first[parent as usize], at),
        }
    }
    let (mut order, mut path) = (Vec::with_capacity(n), vec![]);
    while let Some(root) = roots.pop() {
        path.push(root);
        while let Some(&at) = path.last() {
            match replace(&mut first[at as usize], NONE) {
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
