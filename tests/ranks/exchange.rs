//! GPUs of one process that exchange directly: threads share a driver, whose calls must not wait for GPUs that wait for
//! another thread.

use crate::threads::Opaque;
use crate::{cuts, part, share};
use krysp::ranks::Ranks;
use krysp::solvers::Scalar;
use krysp::testing::{matrices, skipped};
use krysp::{Cuda, Error, LinearOperator, Space, ToCuda};
use krysp_kernels::cuda::Device;
use krysp_kernels::cuda::solve::vector::dot;
use krysp_kernels::cuda::team::halo::{HaloExchange, Plan};
use krysp_kernels::cuda::team::member::Member;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Upper bound for what takes milliseconds. A GPU that waits in vain does so for ten seconds.
const AT_ONCE: Duration = Duration::from_secs(5);

/// A rank that fails or panics while the GPUs of others wait for its GPU ends all at once, with its own error.
pub(super) fn a_failing_rank_ends_all() {
    let count = Cuda::devices().len().clamp(2, 5);
    let a = matrices::stencil7(9).csr::<f64>().unwrap();
    let (cut, b) = (&cuts(a.rows(), count)[0], matrices::vector(a.rows()));
    let failed_at = Mutex::new(Instant::now());
    let sum = |ranks: &Ranks, fail: fn() -> Opaque| -> Result<(), Opaque> {
        let rows = share(ranks, &a, cut).to(&ranks.gpu()?)?;
        let x = rows.domain().vector(part(ranks, &b, cut)).map_err(Error::from)?;
        let mut y = rows.range().zeros().map_err(Error::from)?;
        let mut sum = || rows.apply_dot(&x, &mut y)?.read();
        // kernels are loaded
        sum().map_err(Error::from)?;
        if ranks.rank() == 1 {
            // the other ranks are waiting now
            std::thread::sleep(Duration::from_millis(200));
            *failed_at.lock().unwrap() = Instant::now();
            return Err(fail());
        }
        sum().map_err(Error::from)?;
        Ok(())
    };
    let failed = Ranks::threads(count, |ranks| sum(ranks, || Opaque(Some(1))));
    assert_eq!(failed.unwrap_err(), Opaque(Some(1)));
    assert!(failed_at.lock().unwrap().elapsed() < AT_ONCE);
    let panics = || Ranks::threads(count, |ranks| sum(ranks, || resume_unwind(Box::new("as planned"))));
    let ended = catch_unwind(AssertUnwindSafe(panics));
    assert_eq!(ended.unwrap_err().downcast_ref(), Some(&"as planned"));
    assert!(failed_at.lock().unwrap().elapsed() < AT_ONCE);
}

/// Ranks whose GPUs exchange for other ranks of this process exchange through the hosts.
pub(super) fn gpus_exchange_for_one_team() {
    if Cuda::devices().len() < 2 {
        return skipped("two teams on the same GPUs: this machine has fewer than two GPUs");
    }
    let a = matrices::stencil7(5).csr::<f64>().unwrap();
    let cut = &cuts(a.rows(), 2)[0];
    let is_direct = |ranks: &Ranks| Ok(share(ranks, &a, cut).to(&ranks.gpu()?)?.report().peer_to_peer);
    let alone = || Ranks::threads(2, is_direct).map_err(|error: Error| error.to_string());
    let nested = Ranks::threads(2, |ranks| {
        let first = is_direct(ranks)?;
        let inner = if ranks.rank() == 0 { alone() } else { Ok(vec![]) };
        ranks.all(Ok(()))?;
        krysp::Result::Ok((first, inner, is_direct(ranks)?))
    });
    let [(first, inner, again), _] = nested.unwrap().try_into().unwrap();
    assert_eq!((first, inner, again), (true, Ok(vec![false, false]), true));
    assert_eq!(alone(), Ok(vec![true, true]));
}

/// While the first GPU waits for the second, the thread of the second allocates, frees and loads kernels.
pub(super) fn a_busy_thread_does_not_wait() {
    if Cuda::devices().len() < 2 {
        return skipped("calls of the driver while another GPU waits: this machine has fewer than two GPUs");
    }
    let devices = [0, 1].map(|ordinal| Device::new(ordinal).unwrap());
    let members = Member::team(&devices, &[1, 1]).unwrap();
    let members: Vec<Arc<Member>> = members.into_iter().map(Arc::new).collect();
    // a product with the matrix whose entries are 1: each member reads the entry of the other one
    let plan = |own: usize| Plan {
        sends: (0..2).map(|to| if to == own { vec![] } else { vec![0] }).collect(),
        ghosts_from: if own == 0 { vec![0, 0, 1] } else { vec![0, 1, 1] },
        rows: vec![0],
        offsets: vec![0, 1],
        columns: vec![0],
        values: vec![1.0_f64],
    };
    let halos = HaloExchange::connect(&members, &[plan(0), plan(1)]).unwrap();
    let x = [0, 1].map(|own| devices[own].upload(&[3.0 + own as f64]).unwrap());
    let mut y = x.each_ref().map(|x| x.device().zeros::<f64>(1).unwrap());
    // larger than what a queue keeps for reuse
    let pinned = devices[1].pinned::<f64>(1 << 20).unwrap();
    devices.iter().for_each(|device| device.synchronize().unwrap());

    halos[0].send(&x[0]).unwrap();
    halos[0].add(&x[0], &mut y[0]).unwrap();
    let started = Instant::now();
    let calls: [(&str, &dyn Fn()); 4] = [
        ("pinned memory", &|| drop(devices[1].pinned::<f64>(3 << 20).unwrap())),
        ("memory", &|| drop(devices[1].zeros::<f64>(8 << 20).unwrap())),
        ("a sum", &|| assert_eq!(dot(&x[1], &x[1]).read().unwrap(), 16.0)),
        ("another stream", &|| Device::new(1).unwrap().synchronize().unwrap()),
    ];
    drop(pinned);
    assert!(started.elapsed() < AT_ONCE, "freeing pinned memory took {:?}", started.elapsed());
    for (name, call) in calls {
        call();
        assert!(started.elapsed() < AT_ONCE, "{name}: {:?}", started.elapsed());
    }
    halos[1].send(&x[1]).unwrap();
    halos[1].add(&x[1], &mut y[1]).unwrap();
    devices.iter().for_each(|device| device.synchronize().unwrap());
    assert_eq!(members[0].failed_member(), None);
    let found = y.each_ref().map(|y| {
        let mut entry = [0.0];
        y.read(&mut entry).unwrap();
        entry[0]
    });
    assert_eq!(found, [4.0, 3.0]);
}
