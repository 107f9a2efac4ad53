//! The progress line of a running solve, and its residual history.

use crate::chart::Curve;
use krysp::{Interrupt, Progress};
use std::io::{IsTerminal, Write, stderr};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

/// Time between two updates of the progress line.
const TICK: Duration = Duration::from_millis(100);

/// Time between two updates of the line that names the phase of setup work.
const PHASE: Duration = Duration::from_millis(200);

/// An observer of a solve, which draws the progress line and records the residuals. Clones share their state.
#[derive(Clone)]
pub(crate) struct Seen(Arc<Mutex<State>>);

struct State {
    rtol: f64,
    /// `‖b‖`, to which residuals are related if the tolerance is zero.
    norm: f64,
    /// A curve for each configuration (method and preconditioner) with at least one iteration.
    curves: Vec<Curve>,
    /// Total number of iterations of earlier configurations.
    before: usize,
    last: usize,
    shown: Option<Line>,
}

/// The line on a terminal.
struct Line {
    began: Instant,
    /// The first residual of this configuration.
    first: f64,
    drawn: Instant,
}

impl Seen {
    /// An observer that shows a progress line on a terminal, unless `quiet` is set.
    pub(crate) fn new(rtol: f64, quiet: bool) -> Seen {
        let now = Instant::now();
        let shown =
            (!quiet && stderr().is_terminal()).then_some(Line { began: now, first: f64::NAN, drawn: now });
        Seen(Arc::new(Mutex::new(State { rtol, norm: f64::NAN, curves: vec![], before: 0, last: 0, shown })))
    }

    /// Sets `‖b‖`.
    pub(crate) fn relate_to(&self, norm: f64) {
        self.with(|state| state.norm = norm);
    }

    /// Records an iteration.
    pub(crate) fn note(&self, progress: &Progress) {
        self.with(|state| state.note(progress));
    }

    /// Shows a line about the current work on the terminal.
    pub(crate) fn say(&self, what: &str) {
        self.with(|state| {
            if state.shown.is_some() {
                draw(what);
            }
        });
    }

    /// Shows the phase (such as a factorization) of work that `interrupt` can stop, until the returned
    /// [`Phases`] is dropped. `kept` describes the effect of Ctrl-C.
    pub(crate) fn phases(&self, interrupt: &Interrupt, kept: &'static str) -> Phases {
        let (seen, interrupt, (stop, stopped)) = (self.clone(), interrupt.clone(), channel());
        let thread = spawn(move || {
            let mut shown = ("", Instant::now());
            while stopped.recv_timeout(PHASE) == Err(RecvTimeoutError::Timeout) {
                let Some(phase) = interrupt.progress() else { continue };
                if shown.0 != phase.phase {
                    shown = (phase.phase, Instant::now());
                }
                let share = if phase.total > 0.0 {
                    format!(", {:.0} % of {:.1e}", 100.0 * (phase.done / phase.total).min(1.0), phase.total)
                } else {
                    String::new()
                };
                let seconds = shown.1.elapsed().as_secs_f64();
                seen.say(&format!("{}{share}, {seconds:.0} s (Ctrl-C {kept})", phase.phase));
            }
        });
        Phases { stop: Some(stop), thread: Some(thread) }
    }

    /// Removes the line, and returns the residual history.
    pub(crate) fn end(&self) -> Vec<Curve> {
        self.with(|state| {
            if state.shown.take().is_some() {
                draw("");
            }
            std::mem::take(&mut state.curves)
        })
    }

    fn with<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    fn note(&mut self, progress: &Progress) {
        let &Progress { iteration, residual, threshold } = progress;
        let relative = residual / if self.rtol > 0.0 { threshold / self.rtol } else { self.norm };
        // the iteration number restarts with each configuration
        if self.curves.is_empty() || iteration <= self.last {
            self.before += self.last;
            self.curves.push(Curve::default());
            if let Some(line) = &mut self.shown {
                (line.began, line.first) = (Instant::now(), relative);
            }
        }
        self.last = iteration;
        if let Some(curve) = self.curves.last_mut() {
            curve.points.push(((self.before + iteration) as f64, relative));
        }
        if let Some(line) = &mut self.shown
            && line.drawn.elapsed() >= TICK
        {
            line.drawn = Instant::now();
            let total = self.before + iteration;
            draw(&format!(
                "iteration {total}, residual {relative:.1e} of {:.0e}{}",
                self.rtol,
                line.left(relative, self.rtol)
            ));
        }
    }
}

impl Line {
    /// The estimated remaining time if the residual continues to decrease at the average rate so far.
    fn left(&self, relative: f64, rtol: f64) -> String {
        let (done, missing) = ((self.first / relative).ln(), (relative / rtol).ln());
        let left = self.began.elapsed().as_secs_f64() * missing / done;
        if left.is_finite() && done > 0.1 && missing > 0.0 {
            format!(", about {left:.0} s left")
        } else {
            String::new()
        }
    }
}

/// Shows phases until it is dropped.
pub(crate) struct Phases {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Phases {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // if the thread panicked, the panic has been printed
            let _ = thread.join();
        }
    }
}

/// Replaces the text of the progress line.
fn draw(text: &str) {
    // an error is ignored: the terminal may be gone
    let _ = write!(stderr(), "\r\x1b[2K{text}");
    let _ = stderr().flush();
}
