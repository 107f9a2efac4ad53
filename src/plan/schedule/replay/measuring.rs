//! When formats are measured: with 100 announced solves or more, and once a system has been solved by iterations.

use super::*;

#[test]
fn formats_are_measured_after_a_solve_by_iterations() {
    let [mut measured, mut never] = [0; 2];
    for system in systems() {
        let mut scheduler = system.scheduler(Some(1000));
        // `Rearranged`, the answer to `Rearrange`, clears it
        scheduler.found.may_rearrange = true;
        if !replay(&system, &mut scheduler).solved {
            continue;
        }
        assert!(scheduler.found.may_rearrange, "{}: measured in the first solve", system.name);
        scheduler.finish();
        for _ in 0..3 {
            replay(&system, &mut scheduler);
            scheduler.finish();
        }
        let count = if scheduler.found.may_rearrange { &mut never } else { &mut measured };
        *count += 1;
    }
    // complete factorizations, for which formats are not measured, solve nearly all of these small systems; iterations solve four
    assert!(measured >= 3 && never > 100, "{measured} measured, {never} not");
}
