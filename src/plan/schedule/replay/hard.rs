//! Systems that are hard for every preconditioner.

use super::*;

/// Elasticity without coordinates: two attempts whose residuals stay the same for half of their iterations do not preempt each other.
#[test]
fn what_is_hard_for_multigrid_is_hard_for_jacobi() {
    let profile = Profile::of(&crate::testing::matrices::elasticity(8).csr::<f64>().unwrap());
    assert_eq!(profile.block, 3);
    let context = Context::of_table(&profile, HOST);
    let list = candidates(&context, |one| matches!(one, Preconditioner::Jacobi | Preconditioner::Amg));
    let mut scheduler = Scheduler::new(context, list, Some(1), false);
    let factorization = Factorization::estimate(&profile);
    let mut done = vec![0; scheduler.found.candidates.len()];
    let replayed = solve(&mut scheduler, factorization, false, |scheduler, action| match action {
        Action::Run { index } => {
            let is_multigrid = scheduler.found.candidates[index].preconditioner == Preconditioner::Amg;
            let (from, needed) = (done[index], if is_multigrid { 500 } else { 1500 });
            let residual = |made: usize| {
                let after_half = (2 * (from + made)).saturating_sub(needed);
                RTOL.powf(after_half as f64 / needed as f64)
            };
            let (made, stopped) = iterate(scheduler, index, factorization, needed - from, residual);
            done[index] += made;
            let end = stopped.unwrap_or(End::Converged);
            Event::Ended(Ended { iterations: made, residual: residual(made), improved: true, end })
        }
        Action::Renew { .. } => Event::Renewed,
        _ => Event::Built,
    });
    let [jacobi, multigrid] = done[..2] else { panic!("{}", replayed.attempts) };
    assert_eq!(replayed.attempts, format!(" > Cg with Jacobi {jacobi} > Cg with Amg {multigrid}"));
    // a later solve begins with what has solved the system
    scheduler.finish();
    assert!(
        multigrid == 500
            && matches!(scheduler.begin(), Action::Run { index: 1 } | Action::Build { index: 1, .. })
    );
}
