//! Replays recorded residual histories: shows what the scheduler decides for real systems, without solving them.
//!
//! `tests/data/plan/histories.txt` has a line for each system with its profile, and one for each candidate with its residuals;
//! `decisions.txt` has the attempts that the scheduler makes for them. The files are rewritten by
//!
//! ```text
//! cargo test --release --lib record_histories -- --ignored          (needs ../shared/matrices; takes an hour)
//! cargo test --release --lib record_new_candidates -- --ignored     (adds those that are not recorded yet)
//! KRYSP_BLESS=1 cargo test --lib decisions_are_those_recorded
//! ```

mod beside_gpu;
mod hard;
mod measuring;
mod record;

use super::{Action, End, Ended, Event, Scheduler};
use crate::plan::candidates::{Candidate, candidates};
use crate::plan::context::Context;
use crate::plan::costs::{Factorization, MachineClass, ordering};
use crate::plan::monitor::Verdict;
use crate::plan::solved::configuration;
use crate::plan::{Costs, Preconditioner, Profile, WorkUnits};
use krysp_solvers::Progress;
use std::fmt::Write;
use std::path::PathBuf;

/// Relative tolerance of the recorded solves.
const RTOL: f64 = 1e-8;

fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/plan").join(name)
}

/// A run of one candidate from `x = 0`.
struct History {
    /// How it ended: `"converged"`, `"failed"`, `"indefinite"`, `"unbuilt"`, or `"limit"` at the time limit.
    ending: String,
    iterations: usize,
    /// Iterations, and the decimal logarithms of the relative residuals after them.
    points: Vec<(usize, f64)>,
}

impl History {
    fn residual(&self, iteration: usize) -> f64 {
        let after = self.points.partition_point(|point| point.0 < iteration);
        let log = match (after.checked_sub(1).map(|at| self.points[at]), self.points.get(after)) {
            (_, Some(&(at, log))) if at == iteration => log,
            (Some((from, a)), Some(&(to, b))) => a + (b - a) * (iteration - from) as f64 / (to - from) as f64,
            (Some((_, log)), None) => log,
            (None, Some(&(_, log))) => log,
            (None, None) => 0.0,
        };
        10f64.powf(log)
    }
}

struct System {
    name: String,
    profile: Profile,
    factorization: Factorization,
    /// Whether the system was found to have no solution.
    inconsistent: bool,
    /// Histories by the names of their configurations.
    histories: Vec<(String, History)>,
}

/// The fields of a profile, as numbers.
fn numbers(profile: &Profile) -> Vec<f64> {
    let lists = profile.lengths.iter().chain(&profile.histogram).map(|&count| count as f64);
    let mut profile = profile.clone();
    let counts = profile.counts().map(|count| *count as f64);
    counts.into_iter().chain(profile.row_scale).chain([profile.neighbours as f64]).chain(lists).collect()
}

fn profile(numbers: &[f64]) -> Profile {
    let count = |at: usize| numbers[at] as usize;
    let mut profile = Profile {
        row_scale: [numbers[17], numbers[18]],
        neighbours: count(19),
        lengths: [20, 21, 22, 23, 24].map(count),
        histogram: (25..numbers.len()).map(count).collect(),
        ..Profile::default()
    };
    profile.counts().into_iter().zip(0..).for_each(|(own, at)| *own = count(at));
    profile
}

fn systems() -> Vec<System> {
    let text = std::fs::read_to_string(data("histories.txt")).unwrap();
    let mut systems: Vec<System> = vec![];
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('|').collect();
        let floats = |text: &str| -> Vec<f64> {
            text.split_whitespace().map(|number| number.parse().unwrap()).collect()
        };
        if fields[0] == "system" {
            let [entries, multiplications, fronts] = floats(fields[3])[..] else { panic!("{line}") };
            systems.push(System {
                name: fields[1].into(),
                profile: profile(&floats(fields[2])),
                factorization: Factorization { entries, multiplications, fronts, dissects: false },
                inconsistent: fields[4] == "inconsistent",
                histories: vec![],
            });
            continue;
        }
        let points = fields[3].split_whitespace().map(|point| {
            let (at, log) = point.split_once(':').unwrap();
            (at.parse().unwrap(), log.parse().unwrap())
        });
        let history = History {
            ending: fields[1].into(),
            iterations: fields[2].parse().unwrap(),
            points: points.collect(),
        };
        systems.last_mut().unwrap().histories.push((fields[0].into(), history));
    }
    systems
}

/// The attempts of a solve.
struct Replayed {
    attempts: String,
    solved: bool,
    /// Total cost in the scheduler's cost model, with that of an elimination ordering.
    work: WorkUnits,
}

/// Executes the actions of a solve. `act` returns the event after one that builds, renews or runs a candidate; the consistency test ends
/// the solve if the system is `inconsistent`.
fn solve(
    scheduler: &mut Scheduler,
    factorization: Factorization,
    inconsistent: bool,
    mut act: impl FnMut(&mut Scheduler, Action) -> Event,
) -> Replayed {
    let mut replayed = Replayed { attempts: String::new(), solved: false, work: WorkUnits::ZERO };
    let known = scheduler.found.factorization.is_some();
    let mut action = scheduler.begin();
    for _ in 0..200 {
        let (event, index) = match action {
            Action::Finish => {
                if scheduler.found.factorization.is_some() && !known {
                    replayed.work += ordering(&scheduler.context.profile);
                }
                return replayed;
            }
            Action::Analyse => (Event::Analysed(factorization), 0),
            Action::Rearrange { .. } => (Event::Rearranged(false), 0),
            Action::TestConsistency { .. } => {
                replayed.attempts += " > test";
                (Event::Tested(inconsistent), 0)
            }
            Action::Build { index } | Action::Renew { index } | Action::Run { index } => {
                let event = act(scheduler, action);
                let one = &scheduler.found.candidates[index];
                replayed.work += match &event {
                    Event::Ended(ended) => {
                        let name = configuration(one.method, one.preconditioner);
                        write!(replayed.attempts, " > {name} {}", ended.iterations).unwrap();
                        replayed.solved = matches!(ended.end, End::Converged);
                        one.costs.iteration * ended.iterations as f64
                    }
                    Event::Renewed => {
                        replayed.attempts += " > renew";
                        one.costs.refresh
                    }
                    _ => one.costs.setup,
                };
                (event, index)
            }
        };
        action = scheduler.next(event, index);
    }
    panic!("no end: {}", replayed.attempts);
}

/// Makes at most `most` iterations with these residuals. Returns their number, and how they ended if the monitor stopped them.
fn iterate(
    scheduler: &mut Scheduler,
    index: usize,
    factorization: Factorization,
    most: usize,
    residual: impl Fn(usize) -> f64,
) -> (usize, Option<End>) {
    let mut monitor = scheduler.monitor(index);
    let mut alternatives = Some(scheduler.analysed_alternatives(index));
    let mut ended = (most, None);
    for iteration in 1..=most {
        let progress = Progress { iteration, residual: residual(iteration), threshold: RTOL };
        let mut verdict = monitor.observe(&progress);
        if verdict == Verdict::Analyse {
            let known = alternatives.take().map(|known| known(factorization));
            verdict = monitor.analysed(known, &progress);
        }
        if matches!(verdict, Verdict::Switch | Verdict::Renew) {
            let renew = verdict == Verdict::Renew;
            ended = (iteration, Some(End::Stopped { estimate: monitor.estimate, renew }));
            break;
        }
    }
    if alternatives.is_none() {
        scheduler.analysed(factorization);
    }
    ended
}

/// Runs a scheduler on a recorded system. A resumed attempt continues where it was suspended.
fn replay(system: &System, scheduler: &mut Scheduler) -> Replayed {
    let (mut done, mut best) = (vec![0; scheduler.found.candidates.len()], 1.0);
    solve(scheduler, system.factorization, system.inconsistent, |scheduler, action| match action {
        Action::Run { index } => Event::Ended(system.run(scheduler, index, &mut done, &mut best)),
        Action::Build { index } => {
            match system.history(scheduler, index).map_or("unbuilt", |history| &*history.ending) {
                "unbuilt" => Event::NotBuilt { indefinite: false },
                "not positive" => Event::NotBuilt { indefinite: true },
                _ => Event::Built,
            }
        }
        _ => Event::Renewed,
    })
}

impl System {
    fn history(&self, scheduler: &Scheduler, index: usize) -> Option<&History> {
        let candidate = &scheduler.found.candidates[index];
        let name = configuration(candidate.method, candidate.preconditioner);
        self.histories.iter().find(|(of, _)| *of == name).map(|(_, history)| history)
    }

    fn context(&self, class: MachineClass) -> Context {
        Context::of_table(&self.profile, class)
    }

    fn scheduler(&self, announced: Option<usize>) -> Scheduler {
        self.scheduler_on(HOST, announced)
    }

    fn scheduler_on(&self, class: MachineClass, announced: Option<usize>) -> Scheduler {
        let context = self.context(class);
        let list = candidates(&context, |one| one != Preconditioner::CuDss);
        Scheduler::new(context, list, announced, false)
    }

    /// The work of the best candidate alone, for some solves, setup included.
    fn best(&self, solves: usize) -> Option<WorkUnits> {
        let scheduler = self.scheduler(Some(solves));
        let alone = (0..scheduler.found.candidates.len()).filter_map(|index| {
            let history = self.history(&scheduler, index).filter(|one| one.ending == "converged")?;
            let one = &scheduler.found.candidates[index];
            let factorization = one.is_analysable(&self.profile).then_some(self.factorization);
            let costs = Costs::of(&self.context(HOST), one.method, one.preconditioner, factorization);
            let ordering = factorization.map_or(WorkUnits::ZERO, |_| ordering(&self.profile));
            Some(ordering + costs.setup + costs.iteration * (solves * history.iterations) as f64)
        });
        alone.min_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// Continues the run of a candidate from where it was suspended.
    fn run(&self, scheduler: &mut Scheduler, index: usize, done: &mut [usize], best: &mut f64) -> Ended {
        let Some(history) = self.history(scheduler, index) else {
            let end = End::Failed { indefinite: false };
            return Ended { iterations: 0, residual: f64::NAN, improved: false, end };
        };
        let from = done[index];
        let residual = |iteration: usize| history.residual(from + iteration);
        let most = history.iterations.saturating_sub(from);
        let (iterations, stopped) = iterate(scheduler, index, self.factorization, most, residual);
        done[index] += iterations;
        let residual = residual(iterations);
        let improved = residual < *best;
        *best = best.min(residual);
        let end = match (stopped, &*history.ending) {
            (Some(stopped), _) => stopped,
            (None, "converged") => End::Converged,
            (None, ending) => End::Failed { indefinite: ending == "indefinite" },
        };
        Ended { iterations, residual, improved, end }
    }
}

#[test]
fn decisions_are_those_recorded() {
    let mut decisions = String::new();
    for system in systems() {
        for announced in [1, 10, 1000] {
            let mut scheduler = system.scheduler(Some(announced));
            let replayed = replay(&system, &mut scheduler);
            let ending = if replayed.solved { "" } else { " > unsolved" };
            let attempts = replayed.attempts.trim_start_matches(" > ");
            writeln!(decisions, "{}, {announced}: {attempts}{ending}", system.name).unwrap();
        }
    }
    if std::env::var_os("KRYSP_BLESS").is_some() {
        std::fs::write(data("decisions.txt"), &decisions).unwrap();
    }
    let recorded = std::fs::read_to_string(data("decisions.txt")).unwrap();
    let changed: Vec<_> = recorded.lines().zip(decisions.lines()).filter(|(a, b)| a != b).collect();
    assert!(recorded == decisions, "{} decisions changed: {changed:#?}", changed.len());
}

#[test]
fn decisions_cost_little_more_than_the_best_in_hindsight() {
    let mut logs = vec![];
    for system in systems() {
        let Some(best) = system.best(1) else { continue };
        let replayed = replay(&system, &mut system.scheduler(Some(1)));
        assert!(replayed.solved, "{}: {}", system.name, replayed.attempts);
        let ratio = replayed.work.0 / best.0.max(50.0);
        logs.push(ratio.ln());
        println!("{ratio:.2} {} {:.0} {:.0}: {}", system.name, replayed.work.0, best.0, replayed.attempts);
    }
    // half of the systems are so small that their best candidate takes less than 50 units
    assert!(mean(&logs) < 1.2);
}

/// The geometric mean of ratios of more than 150 systems, from their logarithms.
fn mean(logs: &[f64]) -> f64 {
    let mean = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
    println!("{mean:.3} over {}", logs.len());
    assert!(logs.len() > 150);
    mean
}

/// Work of `solves` solves by a scheduler, and the trials of other candidates that it makes. Solves after the first `SETTLED` cost as
/// much as the last one of these.
fn repeated(system: &System, solves: usize) -> (WorkUnits, String) {
    const SETTLED: usize = 60;
    let mut scheduler = system.scheduler(Some(solves));
    let (mut work, mut text, mut last) = (WorkUnits::ZERO, String::new(), WorkUnits::ZERO);
    for _ in 0..solves.min(SETTLED) {
        let replayed = replay(system, &mut scheduler);
        scheduler.finish();
        if replayed.work != last {
            write!(text, "; {:.0}: {}", replayed.work.0, replayed.attempts.trim_start_matches(" > "))
                .unwrap();
        }
        last = replayed.work;
        work += last;
    }
    (work + last * solves.saturating_sub(SETTLED) as f64, text)
}

#[test]
fn many_solves_cost_little_more_than_the_best_in_hindsight() {
    for (solves, most) in [(10, 1.25), (1000, 1.1)] {
        let mut logs = vec![];
        for system in systems() {
            let Some(best) = system.best(solves) else { continue };
            let (work, text) = repeated(&system, solves);
            let ratio = work.0 / best.0;
            logs.push(ratio.ln());
            println!("{ratio:.2} {} {solves} {:.0} {:.0}{text}", system.name, work.0, best.0);
        }
        let mean = mean(&logs);
        assert!(mean < most, "{solves} solves: {mean}");
    }
}

#[test]
fn what_was_found_out_is_used_in_later_solves() {
    for system in systems() {
        let mut scheduler = system.scheduler(Some(1000));
        let first = replay(&system, &mut scheduler);
        scheduler.finish();
        if !first.solved {
            continue;
        }
        // some solves try other candidates
        let mut later = vec![];
        for _ in 0..12 {
            later.push(replay(&system, &mut scheduler).work.0);
            scheduler.finish();
        }
        let least = later[6..].iter().copied().fold(f64::INFINITY, f64::min);
        assert!(least <= first.work.0, "{}: {later:?} after {}", system.name, first.work.0);
    }
}

const HOST: MachineClass = MachineClass::Host { threads: 2 };
const GPU: MachineClass = MachineClass::Gpu { threads: 16 };

/// Model of the iterations of a time step that takes `jacobi` iterations with Jacobi, `ratio` times as many as the step for which the
/// preconditioner was built.
fn step(preconditioner: Preconditioner, jacobi: f64, ratio: f64) -> Option<f64> {
    match preconditioner {
        Preconditioner::Jacobi => Some(jacobi * (1.0 + 0.1 * ratio.ln().abs())),
        Preconditioner::Amg => Some((0.9 * jacobi.sqrt()).min(15.0) * (1.0 + 0.5 * ratio.ln().abs())),
        Preconditioner::Cholesky => Some(1.0 + 6.0 * ratio.ln().abs()),
        Preconditioner::Ilut => Some((0.1 * jacobi).max(4.0) * (1.0 + ratio.ln().abs())),
        _ => None,
    }
}

/// Runs the scheduler on time steps with changing values. Returns its work divided by that of the best fixed configuration, and its
/// attempts.
fn time_steps(class: MachineClass, announced: bool, jacobi: &[f64]) -> (f64, String) {
    let profile = Profile::of(&crate::testing::matrices::stencil7(30).csr::<f64>().unwrap());
    let context = Context::of_table(&profile, class);
    let list = candidates(&context, |one| step(one, 1.0, 1.0).is_some());
    let mut scheduler = Scheduler::new(context, list, announced.then_some(jacobi.len()), announced);
    let factorization = Factorization::estimate(&profile);
    let (mut work, mut text) = (WorkUnits::ZERO, String::new());
    let mut built_for = vec![1.0; scheduler.found.candidates.len()];
    for (at, &now) in jacobi.iter().enumerate() {
        if at > 0 && now != jacobi[at - 1] {
            scheduler.values_changed();
        }
        let replayed = solve(&mut scheduler, factorization, false, |scheduler, action| match action {
            Action::Build { index } | Action::Renew { index } => {
                built_for[index] = now;
                if matches!(action, Action::Renew { .. }) { Event::Renewed } else { Event::Built }
            }
            Action::Run { index } => {
                let preconditioner = scheduler.found.candidates[index].preconditioner;
                let needed = step(preconditioner, now, now / built_for[index]).unwrap().ceil();
                let residual = |made: usize| RTOL.powf(made as f64 / needed);
                let (iterations, stopped) =
                    iterate(scheduler, index, factorization, needed as usize, residual);
                let end = stopped.unwrap_or(End::Converged);
                Event::Ended(Ended { iterations, residual: 1e-8, improved: true, end })
            }
            _ => Event::Tested(false),
        });
        work += replayed.work;
        text += &replayed.attempts;
        scheduler.finish();
        text += ";";
    }
    // fixed configurations, renewed after every `every` steps
    let mut best = f64::INFINITY;
    for one in &scheduler.found.candidates {
        for every in [1, 2, 5, 10, 20, usize::MAX] {
            let mut built = jacobi[0];
            let ordered = if one.is_analysable(&profile) { ordering(&profile) } else { WorkUnits::ZERO };
            let mut all = ordered.0 + one.costs.setup.0;
            for (at, &now) in jacobi.iter().enumerate() {
                if at > 0 && at % every == 0 && now != built {
                    built = now;
                    all += one.costs.refresh.0;
                }
                all += one.costs.iteration.0 * step(one.preconditioner, now, now / built).unwrap().ceil();
            }
            best = best.min(all);
        }
    }
    (work.0 / best, text)
}

#[test]
fn an_expensive_setup_that_saves_little_is_not_made() {
    // by its expected cost, threshold ILU saves a quarter of each solve: in 100 solves that is less than its setup
    let (_, text) = time_steps(HOST, false, &[41.0; 100]);
    assert!(text.contains("Jacobi 41;") && !text.contains("Ilut"), "{text}");
}

#[test]
fn time_steps_cost_little_more_than_the_best_fixed_configuration() {
    let growing: Vec<f64> = (0..20).map(|step| 40.0 * 1.05f64.powi(step)).collect();
    let constant = vec![60.0; 100];
    let jumps: Vec<f64> =
        (0..500).map(|step| if (200..350).contains(&step) { 400.0 } else { 50.0 }).collect();
    let wandering: Vec<f64> = (0..300).map(|step| 100.0 + 60.0 * (step as f64 * 0.1).sin()).collect();
    for (name, jacobi) in
        [("growing", growing), ("constant", constant), ("jumps", jumps), ("wandering", wandering)]
    {
        for (announced, class) in [false, true].into_iter().flat_map(|one| [(one, HOST), (one, GPU)]) {
            let (ratio, text) = time_steps(class, announced, &jacobi);
            println!("{name}, {class:?}, announced: {announced}: {ratio:.3}\n{text}");
            assert!(ratio < 1.4, "{name}, {class:?}, announced: {announced}: {ratio}\n{text}");
        }
    }
}
