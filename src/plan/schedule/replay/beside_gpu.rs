//! Decisions for a GPU, whose host builds and applies factorizations.

use super::*;

/// Work of the attempts of a solve, if setups of factorizations take as long as measured.
fn work(scheduler: &Scheduler, attempts: &str) -> f64 {
    let (mut work, mut built) = (0.0, vec![]);
    for attempt in attempts.split(" > ").filter(|attempt| !attempt.is_empty() && *attempt != "test") {
        let (name, iterations) = attempt.rsplit_once(' ').unwrap();
        let is_it = |one: &&Candidate| configuration(one.method, one.preconditioner) == name;
        let one = scheduler.found.candidates.iter().find(is_it).unwrap();
        work += one.costs.iteration.0 * iterations.parse::<f64>().unwrap();
        if !built.contains(&name) {
            let slower = if one.preconditioner.needs_host() { MEASURED } else { 1.0 };
            work += slower * one.costs.setup.0;
            built.push(name);
        }
    }
    work
}

/// Time of setups on the host divided by the expected time: see `HOST` in `costs/machine.rs`.
const MEASURED: f64 = 1.7;

#[test]
fn decisions_cost_little_more_than_the_best_in_hindsight() {
    let mut logs = vec![];
    for system in systems() {
        let mut scheduler = system.scheduler_on(GPU, Some(1));
        let replayed = replay(&system, &mut scheduler);
        scheduler.analysed(system.factorization);
        let alone = system.histories.iter().filter(|(_, history)| history.ending == "converged");
        let known = alone.filter(|(name, _)| {
            scheduler
                .found
                .candidates
                .iter()
                .any(|one| configuration(one.method, one.preconditioner) == *name)
        });
        let costs = known.map(|(name, history)| work(&scheduler, &format!("{name} {}", history.iterations)));
        let Some(best) = costs.min_by(f64::total_cmp) else { continue };
        assert!(replayed.solved, "{}: {}", system.name, replayed.attempts);
        let ratio = work(&scheduler, &replayed.attempts) / best.max(50.0);
        println!("{ratio:.2} {} {best:.0}: {}", system.name, replayed.attempts);
        logs.push(ratio.ln());
    }
    assert!(mean(&logs) < 1.35);
}

#[test]
fn a_gpu_keeps_jacobi_while_a_renewal_by_the_host_costs_more_than_it_saves() {
    let growing: Vec<f64> = (0..40).map(|step| 40.0 * 1.02f64.powi(step)).collect();
    let [host, gpu] = [HOST, GPU].map(|class| time_steps(class, false, &growing).1);
    let count = |text: &str| ["Jacobi ", "renew > Cg with Jacobi "].map(|what| text.matches(what).count());
    let ([on_host, renewed], [on_gpu, lagged]) = (count(&host), count(&gpu));
    assert!(on_host > 3 && renewed + 1 >= on_host, "{host}");
    assert!(on_gpu > 30 && lagged < 8, "{gpu}");
}
