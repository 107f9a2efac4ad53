//! `Ranks::threads`: runs ranks as threads of this process, and collects their results and errors.

use super::collective::Ranks;
use super::comm::Comm;
use super::threads;
use crate::error::{Error, Result};
use krysp_kernels::interrupt::Scope;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::fmt;
use std::sync::{Mutex, PoisonError};

impl Ranks {
    /// Runs `work` on `count` ranks that are threads of this process, and returns the results in the order of
    /// the ranks. Needs neither MPI nor the feature `mpi`.
    ///
    /// The threads of the current Rayon pool are divided among the ranks: on 16 cores, each of 4 ranks has a
    /// pool of 4 threads. Results are bitwise equal to those of the same number of MPI processes. Return plain data,
    /// such as `solution.x`: with two or more ranks, a matrix or preconditioner that `work` returns gives an
    /// error when it is applied, because its ranks have ended.
    ///
    /// If a rank returns an error, the others end with an error that names it, and this function returns the
    /// error of the first rank that failed by itself. If a rank panics, the others end with an error, and then
    /// this function panics, too. A rank that waits for one that has already returned ends with an error.
    ///
    /// ```
    /// use krysp::ranks::{RankAmg, RankMatrix, Ranks};
    /// use krysp::{Cg, gallery};
    ///
    /// let a = gallery::poisson::<f64>(&[20, 20, 20])?;
    /// let b = vec![1.0; a.rows()];
    /// let parts = Ranks::threads(2, |ranks| {
    ///     let is_first = ranks.rank() == 0;
    ///     let a = RankMatrix::distribute(ranks, is_first.then_some(&a))?;
    ///     let own = a.scatter(is_first.then_some(&b[..]))?;
    ///     let solution = Cg::new(&a).preconditioner(RankAmg::new(&a)?).solve(&own)?;
    ///     assert!(solution.report.converged());
    ///     krysp::Result::Ok(solution.x)
    /// })?;
    /// assert_eq!(parts.concat().len(), b.len());
    /// # Ok::<(), krysp::Error>(())
    /// ```
    pub fn threads<R, E>(
        count: usize,
        work: impl Fn(&Ranks) -> std::result::Result<R, E> + Sync,
    ) -> std::result::Result<Vec<R>, E>
    where
        R: Send,
        E: From<Error> + fmt::Display + Send,
    {
        let (pools, scope) = (pools(count)?, Scope::current());
        let comms = threads::Comm::all(count);
        let ranks: Vec<Ranks> = comms.iter().map(|comm| Comm::Thread(comm.clone()).into()).collect();
        let results: Vec<_> = (0..count).map(|_| Mutex::new(None)).collect();
        let on_rank = |rank: usize| {
            let _end = End(&comms[rank]);
            let ranks = &ranks[rank];
            let work = || ranks.run(|| work(ranks));
            let result = scope.as_ref().map_or_else(work, |scope| scope.run(work));
            let follows = ranks.follows_another_rank();
            *results[rank].lock().unwrap_or_else(PoisonError::into_inner) = Some((result, follows));
        };
        run_on(&pools, &on_rank);
        let ended =
            results.into_iter().map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner));
        first_error(ended.flatten().collect())
    }
}

/// Announces the end of a rank's work on drop, also if it panics.
struct End<'c>(&'c threads::Comm);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Pools of threads, one for each rank.
fn pools(count: usize) -> Result<Vec<ThreadPool>> {
    if count == 0 {
        let (what, expected) = ("the number of ranks", "at least one");
        return Err(Error::Option { what, got: "0".into(), expected });
    }
    let each = (rayon::current_num_threads() / count).max(1);
    let pool = |_| ThreadPoolBuilder::new().num_threads(each).build();
    let pools: std::result::Result<_, _> = (0..count).map(pool).collect();
    pools.map_err(|error| Error::Communication(format!("cannot start the threads of {count} ranks: {error}")))
}

/// Runs `work` in all pools at once, each with its index, and waits for all.
fn run_on(pools: &[ThreadPool], work: &(dyn Fn(usize) + Sync)) {
    if let Some((last, others)) = pools.split_last() {
        last.in_place_scope(|scope| {
            scope.spawn(|_| work(others.len()));
            run_on(others, work);
        });
    }
}

/// All results, or the error of the first rank that failed by itself and not because of another one. Each result has a flag that
/// states whether it follows the failure of another rank.
fn first_error<R, E>(results: Vec<(std::result::Result<R, E>, bool)>) -> std::result::Result<Vec<R>, E> {
    let causes = |(result, follows): &(std::result::Result<R, E>, bool)| result.is_err() && !follows;
    let cause = results.iter().position(causes);
    let mut results: Vec<_> = results.into_iter().map(|(result, _)| result).collect();
    if let Some(rank) = cause {
        results.swap(0, rank);
    }
    results.into_iter().collect()
}
