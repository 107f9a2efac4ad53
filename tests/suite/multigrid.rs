//! Features of multigrid that are the same in every memory: host memory.

use crate::multigrid_on_host::OnHost;
use krysp::testing::laws::{self, Relation};

#[test]
fn features_in_host_memory() {
    let relation = Relation { same_aggregates: true, iterations: |host| host..=host };
    laws::multigrid(&OnHost, &OnHost, relation).unwrap();
}
